"""Properties of a leader alone, with any messages of followers and controller."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.model.errors import ErrorCode
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.isr_leader import IsrLeader
from lograft.replication.types import (
    AcceptedIsr,
    Assignment,
    Effects,
    EpochEnd,
    FollowerFetch,
    IsrProposal,
    ReplicationSettings,
)
from tests.unit.replication.list_log import Entry, ListLog

ME = NodeId(1)
REPLICAS = (ME, NodeId(2), NodeId(3))
CODES = [
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
]


class AllUp:
    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        return BrokerEpoch(node_id)

    def can_join_isr(self, node_id: NodeId) -> bool:
        return True


def new_leader(
    replicas: tuple[NodeId, ...], log: ListLog, *, min_isr: int, durable_only: bool = False
) -> IsrLeader:
    return IsrLeader(
        ME,
        Assignment(replicas, replicas, ME, Epoch(0), 0),
        log=log,
        high_watermark=log.log_start_offset,
        brokers=AllUp(),
        settings=ReplicationSettings(
            min_insync_replicas=min_isr, replica_lag_time_max_ms=10, durable_only=durable_only
        ),
        now_ms=0,
    )


COMMANDS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["fetch 2", "fetch 3"]), st.integers(0, 4)),
    st.tuples(st.just("tick"), st.integers(0, 15)),
    st.tuples(st.just("grant"), st.integers(0, 0)),
    st.tuples(st.just("refuse"), st.integers(0, len(CODES) - 1)),
    st.tuples(st.just("flush"), st.integers(0, 0)),
    st.tuples(st.just("metadata"), st.sampled_from([1, 3, 5, 7])),
)


class Story:
    def __init__(self, *, min_isr: int, durable_only: bool) -> None:
        self.log = ListLog()
        self.leader = new_leader(REPLICAS, self.log, min_isr=min_isr, durable_only=durable_only)
        self.now_ms = 0
        self.ends = dict.fromkeys(REPLICAS[1:], 0)
        self.fetched: set[int] = set()
        self.open: IsrProposal | None = None

    def do(self, name: str, number: int) -> None:
        leader, log = self.leader, self.log
        match name:
            case "append":
                log.append(log.end_offset, [Entry(0, 0)] * number)
                leader.on_appended(log.end_offset)
            case "flush":
                log.flush()
                leader.on_durable(log.durable_offset)
            case "tick":
                self.now_ms += number
                self.take(leader.tick(self.now_ms))
            case "grant" if self.open is not None:
                isr = tuple(member.node_id for member in self.open.isr)
                granted = AcceptedIsr(
                    Epoch(0), self.open.partition_epoch + 1, isr, recovering=False
                )
                proposal, self.open = self.open, None
                self.take(leader.on_accepted(proposal, granted, now_ms=self.now_ms))
            case "refuse" if self.open is not None:
                proposal, self.open = self.open, None
                self.take(leader.on_rejected(proposal, CODES[number]))
            case "metadata":
                isr = tuple(node for node in REPLICAS if number & 1 << (node - 1))
                epoch = leader.isr.partition_epoch + 1
                self.open = None
                self.take(
                    leader.on_assignment(
                        Assignment(REPLICAS, isr, ME, Epoch(0), epoch), now_ms=self.now_ms
                    )
                )
            case "fetch 2" | "fetch 3":
                self.fetch(NodeId(int(name[-1])), number)
            case _:
                pass

    def fetch(self, node: NodeId, step: int) -> None:
        self.ends[node] = min(self.ends[node] + step, self.log.end_offset)
        self.fetched.add(node)
        verdict = self.leader.on_follower_fetch(
            FollowerFetch(
                node,
                BrokerEpoch(node),
                Epoch(0),
                Offset(self.ends[node]),
                Epoch(0) if self.ends[node] else Epoch(-1),
                Offset(0),
            ),
            log_start=Offset(0),
            epoch_end=EpochEnd(*self.log.epoch_end(0)),
            now_ms=self.now_ms,
        )
        assert verdict.error is ErrorCode.NONE
        assert verdict.diverging is None
        self.take(verdict.effects)

    def take(self, effects: Effects) -> None:
        if effects.propose is not None:
            assert self.open is None, "two proposals in flight"
            self.open = effects.propose
            assert effects.propose.partition_epoch == self.leader.isr.partition_epoch
            assert any(member.node_id == ME for member in effects.propose.isr)
            assert self.leader.isr.pending is not None


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 3), st.booleans(), st.lists(COMMANDS, max_size=40))
def test_the_watermark_waits_for_everyone_who_counts(
    min_isr: int, durable_only: bool, commands: list[tuple[str, int]]
) -> None:
    story = Story(min_isr=min_isr, durable_only=durable_only)
    leader = story.leader
    for name, number in commands:
        before = leader.high_watermark
        story.do(name, number)
        assert leader.isr.committed <= leader.isr.maximal
        assert before <= leader.high_watermark <= story.log.end_offset
        if leader.high_watermark == before:
            continue
        assert len(leader.isr.committed) >= min_isr
        for node in leader.isr.maximal - {ME}:
            assert node in story.fetched
            assert leader.high_watermark <= story.ends[node]
        if durable_only:
            assert leader.high_watermark <= story.log.durable_offset


@settings(max_examples=60, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["append", "flush", "switch"]), st.integers(1, 9))),
)
def test_alone_all_that_it_holds_is_committed(
    durable_only: bool, steps: list[tuple[str, int]]
) -> None:
    log = ListLog()
    leader = new_leader((ME,), log, min_isr=1, durable_only=durable_only)
    expected = Offset(0)
    for kind, number in steps:
        before = leader.high_watermark
        if kind == "append":
            log.append(log.end_offset, [Entry(0, 0)] * number)
            moved = leader.on_appended(log.end_offset)
        elif kind == "flush":
            log.flush()
            moved = leader.on_durable(log.durable_offset)
        else:
            durable_only = number % 2 == 0
            changed = leader.settings._replace(durable_only=durable_only)
            moved = leader.on_settings(changed).high_watermark is not None
        # Committed records remain committed when the setting changes.
        expected = max(expected, log.durable_offset if durable_only else log.end_offset)
        assert leader.high_watermark == expected
        assert moved == (expected > before)
