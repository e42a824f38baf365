"""The decisions of a seed for a run of the kind `groups`, all made before the run starts.

Clients and their events are explicit lists, so that shrinking can remove entries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from campaigns import cluster_plan
from campaigns.cluster_plan import AdminStep, ClusterFault, ClusterOptions

#: Targets of faults: coordinators as well as leaders and controllers.
TARGETS: Final = (
    "leader", "controller", "follower", "any",
    "group-coordinator", "group-coordinator", "transaction-coordinator", "transaction-coordinator",
)  # fmt: skip
#: Administrative steps that apply to these topics.
STEPS: Final = ("mode", "mode", "mode", "mode", "reassign", "elect", "config", "create", "delete")
#: Kinds of client events (actors.py).
EVENTS: Final = ("crash", "crash", "crash", "gone", "leave", "twin", "twin", "silence", "pause")
#: Roles of the clients in a run.
ROLES: Final = (
    ("classic",), ("consumer",), ("classic", "consumer"), ("copier",), ("copier", "consumer"),
    ("copier", "transfer"), ("transfer",), ("transfer", "classic"),
)  # fmt: skip
SHORT_MS: Final = 300
#: Longer than every timeout of groups and transactions.
LONG_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """A client process with an identity that survives restarts."""

    name: str
    #: member: reads and commits; copier: consumes, transforms and produces in transactions;
    #: transfer: moves amounts between the partitions of one topic, in transactions.
    role: str
    group: str = ""
    #: classic or consumer
    protocol: str = ""
    is_static: bool = False
    #: Transaction protocol: 1, or 2 with an epoch for each transaction (KIP-890).
    version: int = 2


@dataclass(frozen=True, slots=True)
class ActorEvent:
    at_ms: int
    kind: str
    actor: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Resets a live group to an offset in all its partitions."""

    at_ms: int
    group: str
    offset: int


@dataclass(slots=True)
class GroupsOptions(ClusterOptions):
    actors: list[ActorPlan] = field(default_factory=list)
    events: list[ActorEvent] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    #: How many of 1,000 eligible requests are delayed or duplicated.
    late_permille: int = 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "GroupsOptions":
        options = cls(**values)
        options.restore()
        options.actors = [ActorPlan(**each) for each in values["actors"]]
        options.events = [ActorEvent(**each) for each in values["events"]]
        options.resets = [Reset(**each) for each in values["resets"]]
        return options


Plan = Callable[[int], GroupsOptions]


def draw_options(seed: int) -> GroupsOptions:
    random = Random(f"{seed}:groups-options")
    seconds = random.choice((4, 6, 9))
    durable = random.random() < 0.15
    actors = draw_actors(random)
    return GroupsOptions(
        nodes=3,
        is_static=random.random() < 0.3,
        seconds=seconds,
        policy=random.choice(("uniform", "uniform", "pct", "fifo")),
        properties=_properties(random, durable=durable),
        modes=(random.choice(cluster_plan.MODES), random.choice(cluster_plan.MODES)),
        durable=durable,
        faults=[
            fault
            for fault in draw_faults(random, seconds, random.choice((0, 2, 3, 5)), durable=durable)
            # As in Kafka, a transaction times out by the wall clock of its coordinator.
            if fault.kind != "clock"
        ],
        steps=draw_steps(random, seconds, random.choice((0, 0, 2, 4))),
        pace_ms=random.choice(((20, 100), (100, 300))),
        actors=actors,
        events=draw_events(random, seconds, random.choice((0, 2, 4, 7)), actors),
        late_permille=random.choice((0, 30, 100)),
        resets=draw_resets(random, seconds, random.choice((0, 0, 1, 2)), actors),
    )


def _properties(random: Random, *, durable: bool) -> dict[str, str]:
    session_ms = random.choice((1_000, 2_500))
    return {
        "replica.fetch.wait.max.ms": str(random.choice((50, 500))),
        "replica.lag.time.max.ms": str(random.choice((1_000, 2_000))),
        "broker.session.timeout.ms": "1500",
        "internal.topics.replication.mode": "raft" if durable else random.choice(("isr", "raft")),
        "group.consumer.session.timeout.ms": str(session_ms),
        **COORDINATORS,
    }


#: Few partitions and short timeouts, so that background work happens often.
COORDINATORS: Final = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.commit.timeout.ms": "2000",
    # Timeout of marker requests; Kafka's 30 seconds are too long for a run.
    "request.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "250",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def draw_actors(random: Random) -> list[ActorPlan]:
    """Draws some of: readers of either protocol, copiers, transfers. All of them would be too
    slow."""
    actors: list[ActorPlan] = []
    roles = random.choice(ROLES)
    for protocol in ("classic", "consumer"):
        for _ in range(random.choice((1, 2, 3)) if protocol in roles else 0):
            name = f"m{len(actors) + 1}"
            is_static = random.random() < 0.3
            actors.append(ActorPlan(name, "member", f"g-{protocol}", protocol, is_static))
    copying = random.choice(("classic", "consumer"))
    for role in ("copier", "transfer"):
        for _ in range(random.choice((1, 2)) if role in roles else 0):
            actors.append(
                ActorPlan(
                    f"x{len(actors) + 1}",
                    role,
                    "g-copy" if role == "copier" else "",
                    copying if role == "copier" else "",
                    role == "copier" and random.random() < 0.2,
                    random.choice((1, 2, 2)),
                )
            )
    return actors


def draw_resets(random: Random, seconds: int, count: int, actors: list[ActorPlan]) -> list[Reset]:
    """Draws resets to the beginning, which exists in every log. Groups of copiers are excluded,
    because they would correctly copy the records again."""
    groups = list(dict.fromkeys(plan.group for plan in actors if plan.role == "member"))
    if not groups:
        return []
    resets = [
        Reset(random.randrange(seconds * 1000), random.choice(groups), 0) for _ in range(count)
    ]
    return sorted(resets, key=lambda reset: reset.at_ms)


def draw_faults(
    random: Random, seconds: int, count: int, *, durable: bool = False
) -> list[ClusterFault]:
    drawn = cluster_plan.draw_faults(random, seconds, count, durable=durable)
    return [
        ClusterFault(each.at_ms, each.kind, random.choice(TARGETS), each.duration_ms, each.amount)
        for each in drawn
    ]


def draw_steps(random: Random, seconds: int, count: int) -> list[AdminStep]:
    steps = [
        AdminStep(random.randrange(seconds * 1000), random.choice(STEPS), random.randrange(1_000))
        for _ in range(count)
    ]
    return sorted(steps, key=lambda step: step.at_ms)


def draw_events(
    random: Random, seconds: int, count: int, actors: list[ActorPlan]
) -> list[ActorEvent]:
    events = [
        ActorEvent(
            random.randrange(seconds * 1000),
            random.choice(EVENTS),
            random.choice(actors).name,
            random.choice((random.randrange(1, SHORT_MS), SHORT_MS, 1_500, LONG_MS)),
        )
        for _ in range(count)
    ]
    return sorted(events, key=lambda event: event.at_ms)
