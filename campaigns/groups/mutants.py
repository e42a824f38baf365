"""Mutants of coordinators: each removes one safeguard, which the watches or checkers must
detect."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from campaigns.groups import guided
from campaigns.groups.plan import Plan
from campaigns.groups.run import run_groups
from campaigns.mutants import Patch, hunt_by_runs
from lograft.broker.coordinators import coordinator_runtime
from lograft.broker.coordinators.coordinator_runtime import CoordinatorRuntime
from lograft.broker.coordinators.coordinator_shard import Shard
from lograft.broker.coordinators.marker_sender import MarkerSender
from lograft.broker.coordinators.transaction_verification import TransactionVerification
from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.errors import NotCoordinator
from lograft.coordination.offset_table import OffsetTable
from lograft.coordination.transaction import Transaction
from lograft.coordination.transaction_shard import TransactionShard
from lograft.coordination.types import CoordinatorResult
from lograft.model.errors import ErrorCode
from lograft.simulation.checkers import Violation
from lograft.storage import producers
from lograft.storage.log import Log
from lograft.storage.transaction_index import TransactionIndex

SEEDS_MAX: Final = 40


# -- the mutants -----------------------------------------------------------------------------------


def _do_nothing(*_: Any, **__: Any) -> None:
    return None


def _return_true(*_: Any, **__: Any) -> bool:
    return True


def _release_at_once(self: Shard[Any], replies: Any, effects: Any) -> None:
    self._release(replies, effects)


def _respond_on_close(self: Shard[Any]) -> None:
    """KAFKA-20634: uncommitted records of an ended epoch count as committed."""
    for append in self._uncommitted:
        self._release(append.replies, ())
    _CLOSE(self)


def _serve_unloaded(self: CoordinatorRuntime[Any], index: int) -> Shard[Any]:
    shard = self._shards.get(index)
    if shard is None:
        raise NotCoordinator(f"this broker does not lead {self.topic}-{index}")
    return shard


def _any_member(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
    return self.members.get(member_id)


def _forget_some(self: OffsetTable, group_id: str, topic: str, partition: int, value: Any) -> None:
    """Replays only the first commit of each partition."""
    if not self.contains(group_id, topic, partition):
        _SET(self, group_id, topic, partition, value)


def _fence_none(self: Any, now_ms: int) -> CoordinatorResult:
    return CoordinatorResult()


def _effects_at_once(self: Shard[Any], replies: Any, effects: Any) -> None:
    self._release((), effects)
    _WHEN_COMMITTED(self, replies, ())


def _never_bump(self: Transaction, **kwargs: Any) -> Transaction:
    prepared: Transaction = _PREPARED(self, **{**kwargs, "bumps_epoch": False})
    return prepared


def _same_identity(self: TransactionShard, transactional_id: str, found: Any, request: Any) -> Any:
    return found.producer_id, max(found.epoch, 0)


def _abort_with_its_epoch(self: TransactionShard, found: Transaction) -> Transaction:
    return found.prepare(
        commit=False,
        bumps_epoch=False,
        client_version=found.client_version,
        next_producer_id=-1,
        wall_ms=self.context.wall_ms(),
    )


def _all_stable(self: Log, high_watermark: Any) -> Any:
    return high_watermark


def _agree(
    self: TransactionVerification, transactional_id: Any, producer: Any, partitions: Any, **_: Any
) -> Any:
    async def without_conflicts() -> dict[Any, ErrorCode]:
        return dict.fromkeys(partitions, ErrorCode.NONE)

    return without_conflicts()


def _visible_at_once(
    self: OffsetTable, producer_id: int, group_id: str, topic: str, partition: int, value: Any
) -> None:
    self.set(group_id, topic, partition, value)


def _resume_nothing(self: TransactionShard, now_ms: int) -> Any:
    return replace(_ON_LOADED(self, now_ms), effects=())


def _never_due(self: Transaction, wall_ms: int) -> bool:
    return False


def _give_up(self: MarkerSender, transaction: Any, partition: Any) -> None:
    self._on_marker_written(transaction, partition)


_WHEN_COMMITTED: Final[Any] = Shard._release_when_committed
_PREPARED: Final[Any] = Transaction.prepare
_ON_LOADED: Final[Any] = TransactionShard.on_loaded
_CLOSE: Final[Any] = Shard.close
_SET: Final[Any] = OffsetTable.set


class GroupMutant(NamedTuple):
    meaning: str
    patches: list[Patch]
    plan: Plan


GROUP_MUTANTS: Final[dict[str, GroupMutant]] = {
    "reply before commit": GroupMutant(
        "coordinators respond as soon as their own log has the records",
        [(Shard, "_release_when_committed", _release_at_once)],
        guided.coordinators_die,
    ),
    "deposed coordinator responds": GroupMutant(
        "a deposed coordinator acknowledges pending requests (KAFKA-20634)",
        [(Shard, "close", _respond_on_close)],
        guided.coordinators_cut_off,
    ),
    "requests served before the replay completes": GroupMutant(
        "a new coordinator responds with incomplete state",
        [
            (CoordinatorRuntime, "_shard", _serve_unloaded),
            # Small slices, so that records are missing during the load.
            (coordinator_runtime, "LOAD_BYTES", 100),
        ],
        guided.coordinators_load_slowly,
    ),
    "later commits are not replayed": GroupMutant(
        "only the first commit of each partition is replayed",
        [(OffsetTable, "set", _forget_some)],
        guided.coordinators_die,
    ),
    "stale generation accepted": GroupMutant(
        "classic groups accept commits of any generation",
        [(ClassicGroup, "check_generation", _do_nothing)],
        guided.classic_members_come_and_go,
    ),
    "unknown member accepted": GroupMutant(
        "classic groups accept commits of removed members",
        [
            (ClassicGroup, "check_member", _any_member),
            (ClassicGroup, "check_generation", _do_nothing),
            (ClassicGroup, "on_commit", _do_nothing),
        ],
        guided.twins,
    ),
    "stale member epoch accepted": GroupMutant(
        "consumer groups accept commits of any epoch, also of removed members",
        [(ConsumerGroup, "check_commit", _do_nothing)],
        guided.consumers_come_and_go,
    ),
    "partition assigned before it is revoked": GroupMutant(
        "a partition is assigned to a member while another still uses it",
        [(ConsumerGroup, "is_free", _return_true)],
        guided.consumers_come_and_go,
    ),
    "reset fences no member": GroupMutant(
        "members of a reset group keep their positions",
        [(ClassicGroup, "fence_all", _fence_none), (ConsumerGroup, "fence_all", _fence_none)],
        guided.resets,
    ),
    "no epoch bump": GroupMutant(
        "the end of a transaction does not bump the producer epoch",
        [(Transaction, "prepare", _never_bump)],
        guided.transfers,
    ),
    "zombie not fenced": GroupMutant(
        "InitProducerId returns an identity that is in use",
        [
            (TransactionShard, "_next_identity", _same_identity),
            (TransactionShard, "_abort_and_fence", _abort_with_its_epoch),
        ],
        guided.transfer_twins,
    ),
    "verification skipped": GroupMutant(
        "leaders accept transactional batches without verification",
        [(TransactionVerification, "verify", _agree)],
        guided.transfers,
    ),
    "marker before PREPARE is committed": GroupMutant(
        "markers are written for an outcome that the coordinator's log may lose",
        [(Shard, "_release_when_committed", _effects_at_once)],
        guided.one_way_coordinators,
    ),
    "markers given up": GroupMutant(
        "a marker that could not be written counts as written",
        [(MarkerSender, "_delay", _give_up)],
        guided.transfer_leaders_die,
    ),
    "prepared transactions not resumed": GroupMutant(
        "a new coordinator does not write pending markers",
        [(TransactionShard, "on_loaded", _resume_nothing)],
        guided.transfer_coordinators_die,
    ),
    "transactions never time out": GroupMutant(
        "transactions of dead producers stay open",
        [(Transaction, "has_timed_out", _never_due)],
        guided.transfers_die,
    ),
    "LSO is HW": GroupMutant(
        "read_committed consumers get records of open transactions",
        [(Log, "last_stable_offset", _all_stable)],
        guided.transfers,
    ),
    "abort index skipped": GroupMutant(
        "abort markers are not added to the index",
        [(TransactionIndex, "append", _do_nothing)],
        guided.transfers,
    ),
    "offsets visible before commit": GroupMutant(
        "offsets of a transaction are visible immediately",
        [(OffsetTable, "set_pending", _visible_at_once)],
        guided.copiers_die,
    ),
    "transactional commits of any generation": GroupMutant(
        "offsets of a transaction are accepted from removed members",
        [(ConsumerGroup, "check_commit", _do_nothing)],
        guided.copiers_die,
    ),
    "dedup window 4": GroupMutant(
        "a partition keeps only four batches of a producer",
        [(producers, "BATCHES_KEPT", 4)],
        guided.pipelines,
    ),
}


def hunt_groups(name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0) -> tuple[int, str] | None:
    """Returns the number of seeds until the mutant is caught and what caught it, or None."""
    mutant = GROUP_MUTANTS[name]

    def run(seed: int) -> Sequence[Violation]:
        return run_groups(seed, mutant.plan(seed)).violations

    return hunt_by_runs(run, mutant.patches, range(first, first + seeds_max))
