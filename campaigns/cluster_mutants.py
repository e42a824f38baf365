"""Mutants of a cluster: each removes one safeguard, which the watches or checkers must detect.

Random plans do not detect all of them quickly, so each mutant names the plan that it is hunted
with: faults that its safeguard protects against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from campaigns.cluster_plan import (
    AdminStep,
    ClusterFault,
    ClusterOptions,
)
from campaigns.cluster_run import run_cluster
from campaigns.mutants import Patch, hunt_by_runs
from lograft.broker.broker import Broker
from lograft.broker.coordinators import producer_ids
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.waits import OffsetWaits
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.broker.replicas.follower_partition import FollowerPartition
from lograft.broker.replicas.replicas import ImageBrokers
from lograft.metadata import alter_partition, brokers
from lograft.metadata.broker_partitions import handle_departure
from lograft.metadata.elections import PartitionChange
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_NODE
from lograft.replication.isr_follower import IsrFollower
from lograft.replication.isr_leader import IsrLeader
from lograft.simulation.checkers import Violation
from lograft.storage import recovery
from lograft.storage.producers import ProducerStates

SEEDS_MAX: Final = 40

Plan = Callable[[int], ClusterOptions]


def _do_nothing(*_: Any, **__: Any) -> None:
    return None


def _return_true(*_: Any, **__: Any) -> bool:
    return True


def _return_false(*_: Any, **__: Any) -> bool:
    return False


# -- the plans -------------------------------------------------------------------------------------


def _plan(
    seed: int, kinds: tuple[str, ...], targets: tuple[str, ...], every_ms: int
) -> ClusterOptions:
    """Plans a sequence of faults of these kinds and targets."""
    random = Random(f"{seed}:guided")
    seconds = 6
    faults = [
        ClusterFault(
            at_ms=at_ms + random.randrange(every_ms // 2),
            kind=random.choice(kinds),
            target=random.choice(targets),
            duration_ms=random.choice((300, 1_000, 3_000)),
            amount=random.randint(1, 60),
        )
        for at_ms in range(500, seconds * 1_000, every_ms)
    ]
    return ClusterOptions(
        nodes=3, seconds=seconds, faults=faults, pace_ms=(1, 10, 30), policy="uniform",
        properties={"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "1500"},
    )  # fmt: skip


def power(seed: int) -> ClusterOptions:
    return _plan(
        seed, ("power", "crash-power", "crash-power"), ("leader", "controller", "any"), 900
    )


def quorum_power(seed: int) -> ClusterOptions:
    """Power losses, also of all nodes at once; topics fsync, so that only the metadata is at
    risk."""
    kinds = ("power", "crash-power", "power-all", "power-all")
    return replace(_plan(seed, kinds, ("controller", "controller", "any"), 900), durable=True)


def two_down(seed: int) -> ClusterOptions:
    """One node is down for long, another loses power in that time, then the third is killed."""
    random = Random(f"{seed}:two-down")
    faults = []
    for start_ms in (500, 7_000):
        first, second, third = random.sample(("1", "2", "3"), 3)
        faults += [
            ClusterFault(start_ms, "kill", first, 5_000, 1),
            ClusterFault(start_ms + random.randint(200, 900), "power", second, 300, 1),
            ClusterFault(start_ms + random.randint(2_500, 3_500), "kill", third, 2_000, 1),
        ]
    options = _plan(seed, ("reset",), ("any",), 20_000)
    return replace(options, seconds=14, faults=faults)


def partitions(seed: int) -> ClusterOptions:
    return _plan(
        seed, ("isolate", "cut-in", "cut-out", "pause", "bridge"), ("leader", "controller"), 1_500
    )


def kills(seed: int) -> ClusterOptions:
    return _plan(seed, ("kill", "kill", "pause", "isolate"), ("leader", "follower"), 900)


def failovers(seed: int) -> ClusterOptions:
    """A leader dies and a follower is paused: the next leader waits long for its followers, while
    clients request the latest offset."""
    random = Random(f"{seed}:failovers")
    faults = [
        ClusterFault(at_ms, kind, target, 1_000, random.randint(1, 60))
        for at_ms in (500, 2_500, 4_500)
        for kind, target in (("kill", "leader"), ("pause", "follower"))
    ]
    return replace(_plan(seed, ("reset",), ("any",), 20_000), faults=faults, list_ms=(2, 10))


def follower_death(seed: int) -> ClusterOptions:
    """A follower dies; a loss of its replicas is visible only in its folders."""
    faults = [ClusterFault(1_000, "kill", "follower", 500, 1)]
    return replace(_plan(seed, ("reset",), ("any",), 20_000), faults=faults)


def switches(seed: int) -> ClusterOptions:
    """Switches a topic of each replication mode to the other mode."""
    options = _plan(seed, ("reset", "kill"), ("leader", "follower"), 2_000)
    steps = [AdminStep(1_500, "mode", 0), AdminStep(2_500, "mode", 1)]
    return replace(options, modes=("isr", "raft"), steps=steps)


def calm(seed: int) -> ClusterOptions:
    return _plan(seed, ("reset", "slow-link", "slow-disk"), ("leader", "follower"), 2_000)


# -- the mutants -----------------------------------------------------------------------------------


def _advance_alone(self: IsrLeader) -> bool:
    if self.end <= self.high_watermark:
        return False
    self.high_watermark = self.end
    return True


def _acknowledge_at_once(self: IsrLeader, end: Any) -> ErrorCode:
    return ErrorCode.NONE


def _advance_below_minimum(self: IsrLeader) -> bool:
    minimum, self.min_isr = self.min_isr, 0
    try:
        return bool(_ADVANCE(self))
    finally:
        self.min_isr = minimum


def _believe_watermark(self: IsrFollower) -> Any:
    """Adopts the leader's high watermark, regardless of the follower's log."""
    self.high_watermark = max(self.high_watermark, self._response.high_watermark)
    return _FOLLOW(self)


def _never_diverges(*_: Any) -> None:
    return None


def _register_as_clean(image: Any, broker_id: int, config: Any) -> Any:
    return handle_departure(image, broker_id, config)


def _elect_anyone(self: PartitionChange, replica: int) -> bool:
    return replica != NO_NODE


def _ids_from_zero(self: Any) -> Any:
    async def fetch() -> None:
        self._next, self._end = 0, 1_000

    return fetch()


def _release_all(self: OffsetWaits, make_error: Any) -> None:
    waits, self.waits = self.waits, []
    for _, waiter in waits:
        waiter.on_reached(ErrorCode.NONE)


def _pretend_truncation(self: FollowerPartition, truncate: Any, to: Any) -> None:
    """Reports a truncation that did not happen."""
    self.role._truncate_to = self.partition.log.end_offset  # type: ignore[attr-defined, union-attr]
    self._execute(self.role.on_log_truncated())


def _switch_without_producers(self: Partition, assignment: Any) -> None:
    if assignment.mode is not self.assignment.mode and self.log is not None:
        self.log.producers.clear()
    _ASSIGN(self, assignment)


_ASSIGN: Final[Any] = Partition.on_assignment
_ADVANCE: Final[Any] = IsrLeader._advance
_FOLLOW: Final[Any] = IsrFollower._follow_leader


@dataclass(frozen=True, slots=True)
class ClusterMutant:
    meaning: str
    patches: list[Patch]
    plan: Plan


CLUSTER_MUTANTS: Final[dict[str, ClusterMutant]] = {
    "metadata log not fsynced": ClusterMutant(
        "voters count records that are only in the page cache",
        [(RaftDriver, "_flush", _do_nothing)],
        quorum_power,
    ),
    "vote not persisted": ClusterMutant(
        "epoch and vote are sent but never persisted",
        [(RaftDriver, "_write_state", _do_nothing)],
        quorum_power,
    ),
    "high watermark of the leader alone": ClusterMutant(
        "the leader commits records regardless of its followers",
        [(IsrLeader, "_advance", _advance_alone)],
        calm,
    ),
    "acknowledged before the commit": ClusterMutant(
        "acks=all is acknowledged as soon as the leader has the record",
        [(IsrLeader, "ack_of", _acknowledge_at_once)],
        kills,
    ),
    "min.insync.replicas ignored": ClusterMutant(
        "a leader with too few in-sync replicas continues",
        [
            (IsrLeader, "_advance", _advance_below_minimum),
            (IsrLeader, "is_below_min_isr", property(_return_false)),
        ],
        kills,
    ),
    "follower does not fsync": ClusterMutant(
        "flush.messages=1: a follower continues to fetch before it has fsynced",
        [(IsrFollower, "waits_for_flush", property(_return_false))],
        calm,
    ),
    "high watermark beyond the log": ClusterMutant(
        "a follower adopts the leader's high watermark beyond its log",
        [(IsrFollower, "_follow_leader", _believe_watermark)],
        kills,
    ),
    "divergence not detected": ClusterMutant(
        "a leader considers any follower's log a prefix of its own",
        [(IsrLeader, "_find_divergence", _never_diverges)],
        kills,
    ),
    "unclean shutdown not detected": ClusterMutant(
        "a broker that lost power stays in the ISR",
        [(brokers, "handle_loss", _register_as_clean)],
        two_down,
    ),
    "any replica is eligible": ClusterMutant(
        "replicas without all committed records become leaders",
        [(PartitionChange, "_is_eligible", _elect_anyone)],
        kills,
    ),
    "broker epochs of ISR members not checked": ClusterMutant(
        "a replica joins the ISR with a stale broker epoch (KIP-903)",
        [
            (alter_partition, "_check_members", _do_nothing),
            (ImageBrokers, "can_join_isr", _return_true),
            (IsrLeader, "_is_eligible", _return_true),
        ],
        kills,
    ),
    "pending produces completed by a deposed leader": ClusterMutant(
        "a deposed leader acknowledges uncommitted records",
        [(OffsetWaits, "dismiss", _release_all)],
        partitions,
    ),
    "logs not truncated": ClusterMutant(
        "a follower keeps records that its leader does not have",
        [(FollowerPartition, "_truncate", _pretend_truncation)],
        kills,
    ),
    "producer state survives a truncation": ClusterMutant(
        "a truncation does not rebuild the producer state",
        [(recovery, "rebuild_producers", _do_nothing)],
        kills,
    ),
    "producer state lost in a mode switch": ClusterMutant(
        "a partition that switches its mode loses its producer state",
        [(Partition, "on_assignment", _switch_without_producers)],
        switches,
    ),
    "latest offset returned too early": ClusterMutant(
        "a new leader returns its high watermark before it has caught up (KIP-207)",
        [(IsrLeader, "can_report_latest", property(_return_true))],
        failovers,
    ),
    "unknown logs deleted too early": ClusterMutant(
        "a node treats topics as deleted that it has not read from the metadata yet",
        [(Broker, "_config_of_found", _do_nothing)],
        follower_death,
    ),
    "duplicates are appended": ClusterMutant(
        "sequences of idempotent producers are not checked",
        [(ProducerStates, "check", _do_nothing)],
        kills,
    ),
    "producer IDs assigned twice": ClusterMutant(
        "brokers assign IDs that the controller did not allocate",
        [(producer_ids.ProducerIds, "_fetch", _ids_from_zero)],
        calm,
    ),
}


def hunt_cluster(
    name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0
) -> tuple[int, str] | None:
    """Returns the number of seeds until the mutant is caught and what caught it, or None."""
    mutant = CLUSTER_MUTANTS[name]

    def run(seed: int) -> Sequence[Violation]:
        return run_cluster(seed, mutant.plan(seed)).violations

    return hunt_by_runs(run, mutant.patches, range(first, first + seeds_max))
