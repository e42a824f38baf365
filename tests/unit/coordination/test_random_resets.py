"""Random operations of a group with resets: regardless of requests in flight, the last reset, undo
or valid commit wins, and every coordinator replays the same state."""

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lograft.model.errors import Rejected
from tests.unit.coordination.test_offset_reset import PROTOCOLS, Member, Resets

PARTITIONS = st.integers(0, 1)
OFFSETS = st.integers(0, 100)


@dataclass
class Believed:
    """An offset, and the one that an undo would restore; -1: none."""

    offset: int = -1
    before: int | None = None


class Lives(RuleBasedStateMachine):
    @initialize(protocol=st.sampled_from(PROTOCOLS))
    def begin(self, protocol: str) -> None:
        self.resets = Resets()
        self.member = Member(self.resets, protocol)
        self.is_in = False
        self.believed = {0: Believed(), 1: Believed()}
        #: Memberships before they were fenced: (member id, epoch).
        self.old: list[tuple[str, int]] = []
        #: Offsets of the open transaction that would be valid if it were committed now.
        self.pending: dict[int, int] = {}

    def fenced(self) -> None:
        if self.is_in:
            self.old.append((self.member.member_id, self.member.epoch))
            self.is_in = False

    @rule()
    @precondition(lambda self: not self.is_in)
    def join(self) -> None:
        self.member.join()
        self.is_in = True

    @rule(partition=PARTITIONS, offset=OFFSETS)
    @precondition(lambda self: self.is_in)
    def commit(self, partition: int, offset: int) -> None:
        self.member.commit({partition: offset})
        self.believed[partition].offset = offset
        self.pending.pop(partition, None)

    @rule(partition=PARTITIONS, offset=OFFSETS)
    @precondition(lambda self: self.is_in)
    def commit_in_transaction(self, partition: int, offset: int) -> None:
        member = self.member
        self.resets.commit_in_transaction({partition: offset}, member.member_id, member.epoch)
        self.pending[partition] = offset

    @rule(committed=st.booleans())
    def end_transaction(self, committed: bool) -> None:
        self.resets.end_transaction(77, committed=committed)
        if committed:
            for partition, offset in self.pending.items():
                self.believed[partition].offset = offset
        self.pending.clear()

    @rule(data=st.data(), partition=PARTITIONS, transactional=st.booleans())
    @precondition(lambda self: self.old)
    def commit_of_before(self, data: st.DataObject, partition: int, transactional: bool) -> None:
        member_id, epoch = data.draw(st.sampled_from(self.old))
        commit = self.resets.commit_in_transaction if transactional else self.resets.commit
        try:
            commit({partition: 1000}, member_id, epoch)
        except Rejected:
            return
        raise AssertionError(f"epoch {epoch} of {member_id} was taken")

    @rule(partition=PARTITIONS)
    @precondition(lambda self: self.old and not self.is_in)
    def commit_of_nobody(self, partition: int) -> None:
        try:
            self.resets.commit({partition: 1000})
        except Rejected:
            return
        raise AssertionError("a commit of nobody was taken")

    @rule(offsets=st.dictionaries(PARTITIONS, OFFSETS, min_size=1))
    def reset(self, offsets: dict[int, int]) -> None:
        self.resets.reset(offsets)
        for partition, offset in offsets.items():
            self.believed[partition] = Believed(offset, self.believed[partition].offset)
            self.pending.pop(partition, None)
        self.fenced()

    @rule()
    @precondition(lambda self: any(each.before is not None for each in self.believed.values()))
    def undo(self) -> None:
        back = {
            partition: each.before
            for partition, each in self.believed.items()
            if each.before is not None
        }
        self.resets.undo(back)
        for partition, offset in back.items():
            self.believed[partition] = Believed(offset)
            self.pending.pop(partition, None)
        self.fenced()

    @rule()
    def fail_over(self) -> None:
        self.resets.fail_over()

    @invariant()
    def positions_are_as_believed(self) -> None:
        if not hasattr(self, "believed"):
            return
        assert self.resets.offsets() == {
            partition: each.offset for partition, each in self.believed.items() if each.offset >= 0
        }
        assert self.resets.before() == {
            partition: each.before
            for partition, each in self.believed.items()
            if each.before is not None
        }


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
