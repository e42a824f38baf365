"""Safeguards of a cluster taken out one at a time: what watches and histories must give away.

Random plans do not find all of them soon, so each mutant names the plans that it is hunted with:
the faults against which its safeguard was built.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from campaigns.cluster_plan import (
    AdminStep,
    ClusterFault,
    ClusterOptions,
    draw_options,
)
from campaigns.cluster_run import run_cluster
from campaigns.mutants import Patch, hunt_by_runs
from lograft.broker.broker import Broker
from lograft.broker.coordinators import producer_ids
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.waits import OffsetWaits
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.broker.replicas.follower_partition import FollowerPartition
from lograft.broker.replicas.replicas import BrokersSeen
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


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _true(*_: Any, **__: Any) -> bool:
    return True


def _false(*_: Any, **__: Any) -> bool:
    return False


# -- the plans -------------------------------------------------------------------------------------


def _plan(
    seed: int, kinds: tuple[str, ...], targets: tuple[str, ...], every_ms: int
) -> ClusterOptions:
    """One fault after the other, of these kinds, aimed at these."""
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
    """All at once as well: topics fsync, so that only the metadata is at risk."""
    kinds = ("power", "crash-power", "power-all", "power-all")
    return replace(_plan(seed, kinds, ("controller", "controller", "any"), 900), durable=True)


def two_down(seed: int) -> ClusterOptions:
    """One is away for long, another loses its power meanwhile, then the third goes."""
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
    """A leader dies and somebody is silent: the next one waits long for its followers, while
    clients ask it for the end of the log."""
    random = Random(f"{seed}:failovers")
    faults = [
        ClusterFault(at_ms, kind, target, 1_000, random.randint(1, 60))
        for at_ms in (500, 2_500, 4_500)
        for kind, target in (("kill", "leader"), ("pause", "follower"))
    ]
    return replace(_plan(seed, ("reset",), ("any",), 20_000), faults=faults, list_ms=(2, 10))


def a_follower_dies(seed: int) -> ClusterOptions:
    """Whatever it gives up, the others have: nothing but its folders shows it."""
    faults = [ClusterFault(1_000, "kill", "follower", 500, 1)]
    return replace(_plan(seed, ("reset",), ("any",), 20_000), faults=faults)


def switches(seed: int) -> ClusterOptions:
    """A topic of each mode becomes one of the other."""
    options = _plan(seed, ("reset", "kill"), ("leader", "follower"), 2_000)
    steps = [AdminStep(1_500, "mode", 0), AdminStep(2_500, "mode", 1)]
    return replace(options, modes=("isr", "raft"), steps=steps)


def everything(seed: int) -> ClusterOptions:
    return draw_options(seed)


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


def _counts_nobody_outside(self: IsrLeader, view: Any) -> bool:
    return view.node_id in self.isr.committed


def _believe_watermark(self: IsrFollower) -> Any:
    """The leader's word, however far the own log reaches."""
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


def _pretend_cut(self: FollowerPartition, cut: Any, to: Any) -> None:
    """The role is told that the log ends where it should."""
    self.role._truncate_to = self.partition.log.end_offset  # type: ignore[attr-defined, union-attr]
    self._do(self.role.on_log_truncated())


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
        [(RaftDriver, "_flush", _nothing)],
        quorum_power,
    ),
    "vote not persisted": ClusterMutant(
        "epoch and vote are told but never written",
        [(RaftDriver, "_write_state", _nothing)],
        quorum_power,
    ),
    "watermark of the leader alone": ClusterMutant(
        "what the leader has is committed, whoever else has it",
        [(IsrLeader, "_advance", _advance_alone)],
        calm,
    ),
    "acknowledged before the commit": ClusterMutant(
        "acks=all is answered when the leader has the record",
        [(IsrLeader, "ack_of", _acknowledge_at_once)],
        kills,
    ),
    "minimum of the ISR ignored": ClusterMutant(
        "a leader with too few in-sync replicas goes on",
        [
            (IsrLeader, "_advance", _advance_below_minimum),
            (IsrLeader, "is_below_min_isr", property(_false)),
        ],
        kills,
    ),
    "follower does not fsync": ClusterMutant(
        "flush.messages=1: a follower fetches on before its disk has what it got",
        [(IsrFollower, "waits_for_flush", property(_false))],
        calm,
    ),
    "watermark beyond the log": ClusterMutant(
        "a follower takes the leader's watermark for records that it does not have",
        [(IsrFollower, "_follow_leader", _believe_watermark)],
        kills,
    ),
    "divergence unseen": ClusterMutant(
        "a leader takes any follower's log for a prefix of its own",
        [(IsrLeader, "_diverging", _never_diverges)],
        kills,
    ),
    "unclean stop unseen": ClusterMutant(
        "a broker that lost its power stays in sync",
        [(brokers, "handle_loss", _register_as_clean)],
        two_down,
    ),
    "anyone is elected": ClusterMutant(
        "replicas that do not hold everything become leaders",
        [(PartitionChange, "_is_eligible", _elect_anyone)],
        kills,
    ),
    "registrations of members unchecked": ClusterMutant(
        "the ISR takes in whoever its leader once saw (KIP-903)",
        [
            (alter_partition, "_check_members", _nothing),
            (BrokersSeen, "can_join_isr", _true),
            (IsrLeader, "_is_eligible", _true),
        ],
        kills,
    ),
    "waits released with the leadership": ClusterMutant(
        "a deposed leader acknowledges what waited for its commit",
        [(OffsetWaits, "dismiss", _release_all)],
        partitions,
    ),
    "logs not cut": ClusterMutant(
        "a follower goes on after records that its leader does not have",
        [(FollowerPartition, "_truncate", _pretend_cut)],
        kills,
    ),
    "producers outlive a cut": ClusterMutant(
        "a truncation leaves what is known of producers as it was",
        [(recovery, "rebuild_producers", _nothing)],
        kills,
    ),
    "producers forgotten in a switch": ClusterMutant(
        "a partition that changes its mode begins without what it knew of producers",
        [(Partition, "on_assignment", _switch_without_producers)],
        switches,
    ),
    "latest offset told too soon": ClusterMutant(
        "a new leader tells its own watermark before it has caught up (KIP-207)",
        [(IsrLeader, "can_report_latest", property(_true))],
        failovers,
    ),
    "unknown logs are set aside too soon": ClusterMutant(
        "a node takes topics for deleted that it has not read about yet",
        [(Broker, "_config_of_found", _nothing)],
        a_follower_dies,
    ),
    "repeats are appended": ClusterMutant(
        "sequences of idempotent producers are not checked",
        [(ProducerStates, "check", _nothing)],
        kills,
    ),
    "producer ids given twice": ClusterMutant(
        "brokers hand out ids that they did not ask the controller for",
        [(producer_ids.ProducerIds, "_fetch", _ids_from_zero)],
        calm,
    ),
}


def hunt_cluster(
    name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0
) -> tuple[int, str] | None:
    """How many seeds it takes to catch the mutant, and by what; None: it got away."""
    mutant = CLUSTER_MUTANTS[name]

    def run(seed: int) -> Sequence[Violation]:
        return run_cluster(seed, mutant.plan(seed)).violations

    return hunt_by_runs(run, mutant.patches, range(first, first + seeds_max))
