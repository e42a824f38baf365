"""Rejected requests of the classic protocol, in every version, on Lograft and on Apache Kafka: the
responses are compared field by field (see test_same_groups.py)."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lograft.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lograft.wire.messages.sync_group import SyncGroupRequest
from tests.compatibility.servers import Server, compares_two
from tests.compatibility.test_same_groups import Classic, World, check_same_story, two_coordinators

pytestmark = [
    pytest.mark.interop,
    compares_two(),
]
JOIN, SYNC, HEARTBEAT, LEAVE = range(10), range(6), range(5), range(6)
STATIC_SINCE: Final = {"join": 5, "sync": 3, "heartbeat": 3, "leave": 3}


def join(world: World, version: int, **fields: Any) -> None:
    values = {
        "group_id": world.group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000 if version else -1,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
        **fields,
    }
    world.ask(f"join {version} {sorted(fields)}", JoinGroupRequest(**values), version)


def sync(world: World, version: int, **fields: Any) -> None:
    request = SyncGroupRequest(**{"group_id": world.group, **fields})
    world.ask(f"sync {version} {sorted(fields)}", request, version)


def beat(world: World, version: int, **fields: Any) -> None:
    request = HeartbeatRequest(**{"group_id": world.group, **fields})
    world.ask(f"heartbeat {version} {sorted(fields)}", request, version)


def leave(world: World, version: int, *members: MemberIdentity, group_id: str = "") -> None:
    request = LeaveGroupRequest(group_id=group_id or world.group)
    if version < STATIC_SINCE["leave"]:
        request.member_id = members[0].member_id
    else:
        request.members = list(members)
    world.ask(f"leave {version} of {len(members)}", request, version)


# The scenarios.


def strangers(world: World) -> None:
    """The group has no members."""
    for version in JOIN:
        join(world, version, member_id="stranger")
        join(world, version, group_id="")
        join(world, version, session_timeout_ms=1)
        join(world, version, session_timeout_ms=3_000_000)
        join(world, version, protocols=[])
        join(world, version, protocol_type="")
    for version in SYNC:
        sync(world, version, member_id="stranger")
        sync(world, version, group_id="", member_id="stranger")
    for version in HEARTBEAT:
        beat(world, version, member_id="stranger")
        beat(world, version, group_id="", member_id="stranger")
    for version in LEAVE:
        leave(world, version, MemberIdentity(member_id="stranger"))
    # (Kafka now has an empty group with this name, until it is deleted. Lograft never creates it.)


def members_and_others(world: World) -> None:
    """A stable group with one member, and requests that do not match it."""
    member = Classic(world, "member")
    member.join("t")
    mine: dict[str, Any] = {"member_id": member.member_id, "generation_id": member.generation}
    for version in SYNC:
        sync(world, version, **{**mine, "generation_id": 7})
        sync(world, version, **{**mine, "member_id": "stranger"})
    sync(world, 5, **mine, protocol_name="other")
    sync(world, 5, **mine, protocol_type="other", protocol_name="range")
    beat(world, 4, **mine)
    world.commit(member.member_id, member.generation, 0)
    member.sync({member.member_id: {"t": [0]}})
    world.describe()
    for version in HEARTBEAT:
        beat(world, version, **mine)
        beat(world, version, **{**mine, "generation_id": 7})
        beat(world, version, **{**mine, "member_id": "stranger"})
        if version >= STATIC_SINCE["heartbeat"]:
            beat(world, version, **mine, group_instance_id="nobody")
    for version in JOIN:
        join(world, version, protocol_type="connect")
        join(world, version, protocols=[JoinGroupRequestProtocol(name="roundrobin", metadata=b"")])
        join(world, version, member_id="stranger")
    world.commit(member.member_id, member.generation, 0)
    world.commit(member.member_id, member.generation + 1, 0)
    world.commit("stranger", member.generation, 0)
    world.commit("", -1, 0)
    member.sync()
    known = MemberIdentity(member_id=member.member_id)
    strangers = MemberIdentity(member_id="stranger"), MemberIdentity(group_instance_id="nobody")
    leave(world, 5, *strangers, known, known)
    world.describe()
    world.commit("", -1, 0)
    beat(world, 4, **mine)


def static_members(world: World) -> None:
    """A static member that rejoins, and one that was replaced."""
    first = Classic(world, "first", instance="i")
    first.join("t")
    first.sync({first.member_id: {"t": [0]}})
    second = Classic(world, "second", instance="i")
    second.join("t")
    second.sync()
    world.describe()
    first.beat()
    first.sync()
    world.commit(first.member_id, first.generation, 0)
    first.join("t")
    first.leave()
    second.beat()
    for version in JOIN:
        if version >= STATIC_SINCE["join"]:
            join(world, version, member_id="stranger", group_instance_id="i")
            join(world, version, member_id="stranger", group_instance_id="other")
    for version in HEARTBEAT:
        if version >= STATIC_SINCE["heartbeat"]:
            beat(world, version, member_id=second.member_id, generation_id=second.generation)
    second.leave(by_instance=True)
    second.leave(by_instance=True)
    world.describe()


STORIES: Final[list[Callable[[World], None]]] = [strangers, members_and_others, static_members]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with two_coordinators(tmp_path_factory, settings) as both:
        yield both


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_same_classic_story(servers: tuple[Server, Server], story: Callable[[World], None]) -> None:
    check_same_story(servers, story)
