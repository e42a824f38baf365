"""Resets of the offsets of a group in use, and undoing them: no request that was in flight takes
effect."""

import pytest

from lograft.coordination.classic_member import Client
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.group import QUIET_AFTER_FENCE_MS
from lograft.coordination.offset_commands import commit_offsets, commit_transactional_offsets
from lograft.coordination.offset_fetch import fetch_offsets
from lograft.coordination.offset_reset import reset_offsets
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import RESET_GENERATION, ResetAction
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lograft.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from lograft.wire.messages.sync_group import SyncGroupRequest
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.coordination.classic_client import ClassicConsumer
from tests.unit.coordination.consumer_client import Consumer, Shard
from tests.unit.coordination.shard_driver import WALL_OFFSET_MS

CLIENT = Client(client_id="c", host="/127.0.0.1", api_version=3)
PROTOCOLS = ["classic", "consumer"]


def topics_of(positions: dict[int, int], metadata: str = "") -> list[OffsetCommitRequestTopic]:
    return [
        OffsetCommitRequestTopic(
            name="t",
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
                for partition, offset in positions.items()
            ],
        )
    ]


class Resets(Shard):
    def __init__(self) -> None:
        super().__init__({"group.initial.rebalance.delay.ms": "0"})
        self.create_topic("t", 3)
        self.fail_over()

    def commit(
        self,
        positions: dict[int, int],
        member: str = "",
        epoch: int = -1,
        *,
        retention_ms: int = -1,
        metadata: str = "",
    ) -> None:
        request = OffsetCommitRequest(
            group_id="g",
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=topics_of(positions, metadata),
            retention_time_ms=retention_ms,
        )
        self.ask(
            "commit",
            lambda shard, ticket, now_ms: commit_offsets(
                shard, request, ticket, now_ms=now_ms, api_version=9
            ),
        )

    def commit_in_transaction(
        self, positions: dict[int, int], member: str = "", epoch: int = -1
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=77,
            producer_epoch=0,
            member_id=member,
            generation_id=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                        for partition, offset in positions.items()
                    ],
                )
            ],
        )
        self.ask(
            "commit",
            lambda shard, ticket, _: commit_transactional_offsets(
                shard, request, ticket, api_version=3
            ),
        )

    def act(self, action: ResetAction, positions: dict[int, int], **fields: object) -> None:
        values = {"generation_id_or_member_epoch": RESET_GENERATION, **fields}
        request = OffsetCommitRequest(
            group_id="g",
            topics=topics_of(positions),
            reset_action=action,
            **values,  # type: ignore[arg-type]
        )
        self.ask(
            "admin",
            lambda shard, ticket, now_ms: reset_offsets(shard, request, ticket, now_ms),
        )

    def reset(self, positions: dict[int, int]) -> None:
        self.act(ResetAction.RESET, positions)

    def undo(self, positions: dict[int, int]) -> None:
        self.act(ResetAction.UNDO, positions)

    def fetched(self) -> OffsetFetchResponseGroup:
        asked = OffsetFetchRequestGroup(group_id="g", topics=None)
        self.ask(
            "fetch",
            lambda shard, ticket, _: fetch_offsets(shard, asked, ticket, require_stable=False),
        )
        ((_, reply),) = self.replies
        assert isinstance(reply, OffsetFetchResponseGroup)
        return reply

    def offsets(self) -> dict[int, int]:
        return {
            partition.partition_index: partition.committed_offset
            for topic in self.fetched().topics
            for partition in topic.partitions
        }

    def before(self) -> dict[int, int]:
        """The offset before the reset, of each partition that has one."""
        return {
            partition.partition_index: partition.offset_before_reset
            for topic in self.fetched().topics
            for partition in topic.partitions
            if partition.reset_timestamp != -1
        }


class Member:
    """A member that may commit, in either protocol."""

    def __init__(self, resets: Resets, protocol: str) -> None:
        self.resets = resets
        self.consumer = Consumer(resets, "m") if protocol == "consumer" else None
        self.member_id, self.epoch = "m", 0

    def join(self) -> None:
        if self.consumer is not None:
            self.consumer.join(["t"])
            self.epoch = self.consumer.epoch
            return
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.resets.ask(
            "join", lambda shard, ticket, now: shard.classic.join(request, CLIENT, ticket, now)
        )
        ((_, reply),) = self.resets.replies
        assert isinstance(reply, JoinGroupResponse)
        assert reply.error_code == 0
        self.member_id, self.epoch = reply.member_id, reply.generation_id
        sync = SyncGroupRequest(
            group_id="g", member_id=self.member_id, generation_id=self.epoch, assignments=[]
        )
        self.resets.ask("sync", lambda shard, ticket, now: shard.classic.sync(sync, ticket, now))

    def beat(self) -> ErrorCode:
        if self.consumer is not None:
            return ErrorCode(self.consumer.beat().error_code)
        request = HeartbeatRequest(group_id="g", member_id=self.member_id, generation_id=self.epoch)
        self.resets.ask(
            "beat", lambda shard, ticket, now: shard.classic.heartbeat(request, ticket, now)
        )
        ((_, reply),) = self.resets.replies
        assert isinstance(reply, HeartbeatResponse)
        return ErrorCode(reply.error_code)

    def commit(self, positions: dict[int, int]) -> None:
        self.resets.commit(positions, self.member_id, self.epoch)


@pytest.fixture
def resets() -> Resets:
    return Resets()


@pytest.fixture(params=PROTOCOLS)
def member(request: pytest.FixtureRequest, resets: Resets) -> Member:
    member = Member(resets, request.param)
    member.join()
    return member


def refused(code: ErrorCode) -> "pytest.RaisesExc[Rejected]":
    return pytest.raises(Rejected, check=lambda refusal: refusal.code is code)


# A group in use.


@pytest.mark.parametrize("fails_over", [False, True])
def test_nothing_of_before_overwrites_the_reset(
    resets: Resets, member: Member, fails_over: bool
) -> None:
    member.commit({0: 50, 1: 60})
    resets.batch_sizes.clear()
    resets.reset({0: 3})
    assert len(resets.batch_sizes) == 1, "fence and offsets are one batch"
    if fails_over:
        resets.fail_over()
    old_id, old_epoch = member.member_id, member.epoch
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        member.commit({0: 51})
    assert member.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    member.join()
    assert member.epoch > old_epoch
    # A delayed commit arrives after the member has rejoined.
    with pytest.raises(Rejected) as late:
        resets.commit({0: 52}, old_id, old_epoch)
    assert late.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH)
    assert resets.offsets() == {0: 3, 1: 60}
    member.commit({0: 4})
    assert resets.offsets() == {0: 4, 1: 60}


@pytest.mark.parametrize("fails_over", [False, True])
def test_an_undo_restores_what_was_there(resets: Resets, member: Member, fails_over: bool) -> None:
    member.commit({0: 50, 1: 60})
    resets.reset({0: 3, 1: 4, 2: 5})
    member.join()
    member.commit({0: 9, 1: 8, 2: 7})
    if fails_over:
        resets.fail_over()
    assert resets.before() == {0: 50, 1: 60, 2: -1}
    resets.undo({0: 50, 1: 60, 2: -1})
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        member.commit({0: 10})
    if fails_over:
        resets.fail_over()
    assert resets.offsets() == {0: 50, 1: 60}
    assert resets.before() == {}
    member.join()
    member.commit({0: 51})
    with refused(ErrorCode.INVALID_REQUEST):
        resets.undo({0: 50})
    assert resets.offsets() == {0: 51, 1: 60}


@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction_from_before_a_reset_changes_nothing(
    resets: Resets, member: Member, committed: bool
) -> None:
    member.commit({0: 50})
    resets.commit_in_transaction({0: 55, 1: 66}, member.member_id, member.epoch)
    resets.reset({0: 3})
    with pytest.raises(Rejected):
        resets.commit_in_transaction({0: 56}, member.member_id, member.epoch)
    resets.end_transaction(77, committed=committed)
    resets.fail_over()
    assert resets.offsets() == ({0: 3, 1: 66} if committed else {0: 3})


def test_a_transaction_hands_on_what_was_before(resets: Resets, member: Member) -> None:
    member.commit({0: 50})
    resets.reset({0: 3})
    member.join()
    resets.commit_in_transaction({0: 4}, member.member_id, member.epoch)
    resets.end_transaction(77, committed=True)
    resets.fail_over()
    assert (resets.offsets(), resets.before()) == ({0: 4}, {0: 50})


def test_those_that_lost_their_membership_do_not_commit_as_nobody(
    resets: Resets, member: Member
) -> None:
    """librdkafka discards its member id after UNKNOWN_MEMBER_ID, and still commits if the
    application requests it: for Kafka that is an administrator of an empty group."""
    member.commit({0: 50})
    resets.reset({0: 3})
    for fails_over in (False, True):
        if fails_over:
            resets.fail_over()
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            resets.commit({0: 51})
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            if isinstance(resets.shard.groups["g"], ConsumerGroup):
                resets.commit_in_transaction({0: 51}, epoch=-2)
            else:
                resets.commit_in_transaction({0: 51})
    resets.pass_ms(QUIET_AFTER_FENCE_MS - 1)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        resets.commit({0: 51})
    resets.pass_ms(1)
    resets.commit({0: 51})
    assert resets.offsets() == {0: 51}


def test_a_group_that_others_have_joined_since_is_empty_like_any_other(
    resets: Resets, member: Member
) -> None:
    resets.reset({0: 3})
    member.join()
    resets.pass_ms(60_000)  # its session is over
    assert resets.shard.groups["g"].is_empty()
    resets.commit({0: 51})
    assert resets.offsets() == {0: 51}


def test_what_cannot_be_written_is_not_done(resets: Resets, member: Member) -> None:
    member.commit({0: 50})
    resets.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    resets.reset({0: 3})
    assert resets.offsets() == {0: 50}
    assert resets.before() == {}
    resets.fail_over()
    assert resets.offsets() == {0: 50}


# A group without members.


@pytest.mark.parametrize("is_known", [False, True])
def test_a_group_without_members(resets: Resets, is_known: bool) -> None:
    if is_known:
        resets.commit({0: 50}, metadata="mine")
    resets.reset({0: 3})
    assert len(resets.written) == 1, "there is nobody to send away"
    resets.commit({0: 4})
    resets.fail_over()
    assert resets.before() == {0: 50 if is_known else -1}
    resets.undo({0: 50 if is_known else -1})
    assert resets.offsets() == ({0: 50} if is_known else {})
    if is_known:
        assert resets.fetched().topics[0].partitions[0].metadata == "mine"


def test_each_partition_remembers_its_last_reset(resets: Resets) -> None:
    resets.commit({0: 50, 1: 60})
    resets.reset({0: 3, 1: 3})
    resets.pass_ms(1000)
    resets.reset({0: 7})
    (topic,) = resets.fetched().topics
    assert {
        partition.partition_index: (
            partition.offset_before_reset,
            partition.reset_timestamp - WALL_OFFSET_MS,
        )
        for partition in topic.partitions
    } == {0: (3, 1000), 1: (60, 0)}
    with refused(ErrorCode.INVALID_REQUEST):
        resets.undo({0: 50, 1: 60})
    assert resets.offsets() == {0: 7, 1: 3}, "all or nothing"
    resets.undo({0: 3})
    assert resets.before() == {1: 60}


def test_a_commit_with_an_expiry_of_its_own_ends_the_memory(resets: Resets) -> None:
    resets.commit({0: 50})
    resets.reset({0: 3})
    resets.commit({0: 4}, retention_ms=60_000)
    assert resets.before() == {}
    resets.fail_over()
    assert (resets.offsets(), resets.before()) == ({0: 4}, {})


# Invalid requests.


@pytest.mark.parametrize(
    ("positions", "fields"),
    [
        ({0: 3, 1: -1}, {}),
        ({0: 3}, {"member_id": "m"}),
        ({0: 3}, {"generation_id_or_member_epoch": -1}),
    ],
)
def test_refusals(resets: Resets, positions: dict[int, int], fields: dict[str, object]) -> None:
    with refused(ErrorCode.INVALID_REQUEST):
        resets.act(ResetAction.RESET, positions, **fields)
    assert not resets.log


def test_an_action_that_nobody_knows(resets: Resets) -> None:
    with refused(ErrorCode.INVALID_REQUEST):
        resets.act(3, {0: 3})  # type: ignore[arg-type]


# Members of both protocols in one group.


def test_classic_members_of_a_consumer_group_are_sent_away_too(resets: Resets) -> None:
    consumer = Consumer(resets, "m")
    consumer.join(["t"])
    classic = ClassicConsumer(resets, "old")
    classic.topics = ["t"]
    for _ in ("for its member id", "with it"):
        classic.join()
        ((_, reply),) = resets.replies
        assert isinstance(reply, JoinGroupResponse)
        classic.joined(reply)
    assert len(resets.consumers().members) == 2
    generation = classic.generation
    resets.commit({0: 50}, "m", consumer.epoch)
    resets.reset({0: 3})
    assert not resets.consumers().members
    for member_id, epoch in (("m", consumer.epoch), (classic.member_id, generation)):
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            resets.commit({0: 51}, member_id, epoch)
    resets.fail_over()
    assert (resets.offsets(), resets.before()) == ({0: 3}, {0: 50})
