"""The decisions of a seed for a cluster run, all made before the run starts.

Faults and administrative steps are explicit lists, so that a failing run can be shrunk by removing
some of them. A fault names its target by role (`controller`, `leader`, `follower`), which is
resolved when the fault is injected, so that faults hit the relevant node."""

from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

#: Kinds of faults (cluster_faults.py).
KINDS: Final = (
    "kill", "kill", "kill", "power", "power", "crash-kill", "crash-power", "pause", "pause",
    "isolate", "isolate", "cut-in", "cut-out", "bridge", "split", "slow-link", "slow-disk",
    "eio", "full", "clock", "stop", "stop", "reset", "kill-all", "rolling", "rot", "rot-metadata",
)  # fmt: skip
TARGETS: Final = ("leader", "leader", "leader", "controller", "controller", "follower", "any")
#: Administrative steps (cluster_admin.py).
STEPS: Final = (
    "create", "delete", "reassign", "reassign", "elect", "elect", "config", "grow", "cancel",
    "mode", "mode", "mode", "mode", "voter", "voter",
)  # fmt: skip
MODES: Final = ("isr", "isr", "raft")
SHORT_MS: Final = 500
#: Longer than every timeout of the settings.
LONG_MS: Final = 6_000


@dataclass(frozen=True, slots=True)
class ClusterFault:
    at_ms: int
    kind: str
    target: str
    duration_ms: int
    #: Depends on the kind: a number of operations, a clock jump, a choice.
    amount: int


@dataclass(frozen=True, slots=True)
class AdminStep:
    at_ms: int
    kind: str
    amount: int


@dataclass(slots=True)
class ClusterOptions:
    nodes: int = 3
    #: Controllers and brokers are separate nodes.
    split_roles: bool = False
    is_static: bool = False
    seconds: int = 10
    policy: str = "uniform"
    properties: dict[str, str] = field(default_factory=dict)
    faults: list[ClusterFault] = field(default_factory=list)
    steps: list[AdminStep] = field(default_factory=list)
    #: replication.mode of the topics at their creation.
    modes: tuple[str, str] = ("isr", "isr")
    #: Every topic fsyncs before it acknowledges, so that it survives any number of power losses.
    durable: bool = False
    #: Adds a compacted topic.
    compacted: bool = False
    #: Pauses between two sends of a producer, ms.
    pace_ms: tuple[int, ...] = (1, 20, 100)
    #: Range of the interval between two ListOffsets requests for a partition, ms.
    list_ms: tuple[int, int] = (50, 1_000)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ClusterOptions":
        options = cls(**values)
        options.restore()
        return options

    def restore(self) -> None:
        """Restores the types of values that JSON stores as lists."""
        self.faults = [ClusterFault(**each) for each in self.faults]  # type: ignore[arg-type]
        self.steps = [AdminStep(**each) for each in self.steps]  # type: ignore[arg-type]
        self.modes = (self.modes[0], self.modes[1])
        self.pace_ms = tuple(self.pace_ms)
        self.list_ms = (self.list_ms[0], self.list_ms[1])


def draw_options(seed: int, *, nodes: int | None = None) -> ClusterOptions:
    random = Random(f"{seed}:cluster-options")
    seconds = random.choice((6, 10, 15))
    count = random.choice((0, 2, 3, 5, 8))
    durable = random.random() < 0.2
    return ClusterOptions(
        nodes=random.choice((3, 3, 3, 5)) if nodes is None else nodes,
        split_roles=random.random() < 0.2,
        is_static=random.random() < 0.3,
        seconds=seconds,
        policy=random.choice(("uniform", "uniform", "pct", "fifo")),
        properties=_properties(random),
        modes=(random.choice(MODES), random.choice(MODES)),
        durable=durable,
        compacted=random.random() < 0.25,
        faults=draw_faults(random, seconds, count, durable=durable),
        steps=draw_steps(random, seconds, random.choice((0, 0, 2, 4))),
        pace_ms=random.choice(((1, 20, 100), (20, 200), (100, 500))),
        list_ms=random.choice(((5, 50), (50, 1_000), (50, 1_000), (50, 1_000))),
    )


def _properties(random: Random) -> dict[str, str]:
    return {
        "replica.fetch.wait.max.ms": str(random.choice((50, 500))),
        "replica.lag.time.max.ms": str(random.choice((1_000, 2_000, 4_000))),
        "broker.session.timeout.ms": str(random.choice((1_500, 3_000))),
        "metadata.log.max.record.bytes.between.snapshots": str(random.choice((4_000, 20_000_000))),
        "auto.leader.rebalance.enable": random.choice(("true", "false")),
        "leader.imbalance.check.interval.seconds": str(random.choice((2, 300))),
    }


def draw_faults(
    random: Random, seconds: int, count: int, *, durable: bool = False
) -> list[ClusterFault]:
    kinds = (*KINDS, "power-all", "power-all") if durable else KINDS
    faults = [
        ClusterFault(
            at_ms=random.randrange(seconds * 1000),
            kind=random.choice(kinds),
            target=random.choice(TARGETS),
            duration_ms=random.choice((random.randrange(1, SHORT_MS), SHORT_MS, 2_000, LONG_MS)),
            amount=random.randint(1, 200),
        )
        for _ in range(count)
    ]
    return sorted(faults, key=lambda fault: fault.at_ms)


def draw_steps(random: Random, seconds: int, count: int) -> list[AdminStep]:
    steps = [
        AdminStep(random.randrange(seconds * 1000), random.choice(STEPS), random.randrange(1_000))
        for _ in range(count)
    ]
    return sorted(steps, key=lambda step: step.at_ms)
