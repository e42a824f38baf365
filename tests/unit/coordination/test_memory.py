"""Clients with ever new ids that never stay use no memory permanently."""

import pytest

from lograft.coordination.classic_member import Client
from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lograft.wire.messages.sync_group import SyncGroupRequest
from tests.unit.api.groups_bench import join_request
from tests.unit.coordination.consumer_client import Consumer, Shard

STRANGERS = 30
MINUTE_MS = 60_000
#: The interval of the search for empty groups.
FORGOTTEN_AFTER_MS = 21 * MINUTE_MS
#: The next search.
TIMERS_AT_REST = 1


@pytest.fixture
def shard() -> Shard:
    shard = Shard()
    shard.create_topic("t", 1)
    shard.run(shard.shard.on_loaded(0))
    return shard


def kept(shard: Shard) -> tuple[int, int, int]:
    """The memory of the shard: groups, timers, the tables of the consumer protocol."""
    tables = [var for var in vars(shard.shard.consumer).values() if isinstance(var, dict)]
    return len(shard.shard.groups), len(shard.shard.deadlines), sum(map(len, tables))


def join_classic(shard: Shard, group_id: str, version: int) -> None:
    client = Client(client_id="c", host="/h", api_version=version)
    request = join_request(group=group_id)
    shard.ask("join", lambda at, ticket, now: at.classic.join(request, client, ticket, now))


@pytest.mark.parametrize("version", [1, 9], ids=["joins", "asks for a member id"])
def test_classic_members_that_never_come_back(shard: Shard, version: int) -> None:
    for number in range(STRANGERS):
        join_classic(shard, f"g{number}", version)
    assert kept(shard)[0] == STRANGERS
    shard.pass_ms(FORGOTTEN_AFTER_MS)
    assert kept(shard) == (0, TIMERS_AT_REST, 0)


def test_a_group_that_many_ask_to_join(shard: Shard) -> None:
    for _ in range(STRANGERS):
        join_classic(shard, "g", 9)
    shard.pass_ms(FORGOTTEN_AFTER_MS)
    assert kept(shard) == (0, TIMERS_AT_REST, 0)


def test_consumers_that_never_come_back(shard: Shard) -> None:
    for number in range(STRANGERS):
        Consumer(shard, "m", f"g{number}").join(["t"])
    assert kept(shard)[0] == STRANGERS
    shard.pass_ms(FORGOTTEN_AFTER_MS)
    assert kept(shard) == (0, TIMERS_AT_REST, 0)


def refuse_all_of(shard: Shard, group_id: str) -> None:
    assert Consumer(shard, "m", group_id).join(["t"], server_assignor="mine").error_code
    assert Consumer(shard, "m", group_id).beat(member_epoch=3).error_code
    leave = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="m")])
    shard.ask("leave", lambda at, ticket, now: at.classic.leave(leave, ticket, now))
    beat = HeartbeatRequest(group_id=group_id, member_id="m")
    shard.ask("beat", lambda at, ticket, now: at.classic.heartbeat(beat, ticket, now))
    sync = SyncGroupRequest(group_id=group_id, member_id="m")
    shard.ask("sync", lambda at, ticket, now: at.classic.sync(sync, ticket, now))


def test_what_is_refused_is_not_remembered(shard: Shard) -> None:
    for number in range(STRANGERS):
        refuse_all_of(shard, f"g{number}")
    assert kept(shard) == (0, TIMERS_AT_REST, 0)
