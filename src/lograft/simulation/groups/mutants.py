"""Safeguards of coordinators taken out one at a time: what watches and histories must give away."""

from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from lograft.broker import coordinator_runtime
from lograft.broker.coordinator_runtime import CoordinatorRuntime
from lograft.broker.coordinator_shard import Shard
from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.errors import NotCoordinator
from lograft.coordination.offset_table import OffsetTable
from lograft.simulation.cluster_plan import ClusterFault
from lograft.simulation.groups.plan import (
    COORDINATORS,
    LONG_MS,
    ActorEvent,
    ActorPlan,
    GroupsOptions,
    Plan,
)
from lograft.simulation.groups.run import run_groups
from lograft.simulation.mutants import Patch, active

SEEDS_MAX: Final = 40


# -- the plans -------------------------------------------------------------------------------------


def _plan(seed: int, *, actors: list[ActorPlan], targets: tuple[str, ...] = ()) -> GroupsOptions:
    """Kills and partitions one after the other, aimed at these; requests come late."""
    random = Random(f"{seed}:guided-groups")
    seconds = 6
    faults = [
        ClusterFault(
            at_ms=at_ms + random.randrange(500),
            kind=random.choice(("kill", "isolate", "pause")),
            target=random.choice(targets),
            duration_ms=random.choice((300, 1_000, 2_000)),
            amount=random.randint(1, 60),
        )
        for at_ms in (range(1_000, seconds * 1_000, 1_200) if targets else ())
    ]
    return GroupsOptions(
        nodes=3,
        seconds=seconds,
        faults=faults,
        pace_ms=(10, 30),
        properties={
            "replica.lag.time.max.ms": "1000",
            "broker.session.timeout.ms": "1500",
            "group.consumer.session.timeout.ms": "1000",
            **COORDINATORS,
        },
        actors=actors,
        late_permille=60,
    )


def _members(protocol: str, count: int = 2, *, is_static: bool = False) -> list[ActorPlan]:
    return [
        ActorPlan(f"m{number}", "member", f"g-{protocol}", protocol, is_static)
        for number in range(1, count + 1)
    ]


def _troubled(seed: int, options: GroupsOptions, kinds: tuple[str, ...]) -> GroupsOptions:
    """Something befalls one client after the other."""
    random = Random(f"{seed}:troubled")
    events = [
        ActorEvent(
            at_ms + random.randrange(300),
            random.choice(kinds),
            random.choice(options.actors).name,
            random.choice((100, 500, LONG_MS)),
        )
        for at_ms in range(1_000, options.seconds * 1_000, 900)
    ]
    return replace(options, events=events)


def coordinators_die(seed: int) -> GroupsOptions:
    protocol = ("classic", "consumer")[seed % 2]
    return _plan(seed, actors=_members(protocol), targets=("group-coordinator",))


def coordinators_cut_off(seed: int) -> GroupsOptions:
    """From the other nodes, not from their clients, for as long as clients have patience."""
    random = Random(f"{seed}:cut-off")
    faults = [
        ClusterFault(at_ms + random.randrange(500), "isolate", "group-coordinator", 2_300, 2)
        for at_ms in (1_000, 4_000)
    ]
    options = _plan(seed, actors=_members("classic"))
    patient = {**options.properties, "offsets.commit.timeout.ms": "6000"}
    return replace(options, faults=faults, properties=patient)


def classic_members_come_and_go(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_members("classic", 3))
    return _troubled(seed, options, ("crash", "leave", "silence", "pause"))


def consumers_come_and_go(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_members("consumer", 3))
    return _troubled(seed, options, ("crash", "leave", "silence", "pause"))


def twins(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_members("classic", 2, is_static=True))
    return _troubled(seed, options, ("twin", "twin", "silence"))


# -- the mutants -----------------------------------------------------------------------------------


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _true(*_: Any, **__: Any) -> bool:
    return True


def _release_at_once(self: Shard[Any], replies: Any, effects: Any) -> None:
    self._release(replies, effects)


def _answer_at_the_end(self: Shard[Any]) -> None:
    """KAFKA-20634: what was written in an epoch that is over counts as committed."""
    for one in self._uncommitted:
        self._release(one.replies, ())
    _CLOSE(self)


def _serve_unloaded(self: CoordinatorRuntime[Any], index: int) -> Shard[Any]:
    shard = self._shards.get(index)
    if shard is None:
        raise NotCoordinator(f"this broker does not lead {self.topic}-{index}")
    return shard


def _any_member(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
    return self.members.get(member_id)


def _forget_some(self: OffsetTable, group_id: str, topic: str, partition: int, value: Any) -> None:
    """A replayed commit counts only if it is the first of its partition."""
    if not self.holds(group_id, topic, partition):
        _SET(self, group_id, topic, partition, value)


_CLOSE: Final[Any] = Shard.close
_SET: Final[Any] = OffsetTable.set


class GroupMutant(NamedTuple):
    meaning: str
    patches: list[Patch]
    plan: Plan


GROUP_MUTANTS: Final[dict[str, GroupMutant]] = {
    "reply before commit": GroupMutant(
        "coordinators answer as soon as their own log has the records",
        [(Shard, "_when_committed", _release_at_once)],
        coordinators_die,
    ),
    "deposed coordinator answers": GroupMutant(
        "a coordinator that loses its partition acknowledges what waits (KAFKA-20634)",
        [(Shard, "close", _answer_at_the_end)],
        coordinators_cut_off,
    ),
    "load serves before replay is done": GroupMutant(
        "a new coordinator answers from what it has replayed so far",
        [
            (CoordinatorRuntime, "_shard", _serve_unloaded),
            # A slice at a time, so that there is something to be missed.
            (coordinator_runtime, "LOAD_BYTES", 100),
        ],
        coordinators_die,
    ),
    "later commits are not replayed": GroupMutant(
        "of the offsets of a partition only the first is kept",
        [(OffsetTable, "set", _forget_some)],
        coordinators_die,
    ),
    "stale generation accepted": GroupMutant(
        "classic groups take commits of any generation",
        [(ClassicGroup, "check_generation", _nothing)],
        classic_members_come_and_go,
    ),
    "unknown member accepted": GroupMutant(
        "classic groups take commits of members that they have given up",
        [
            (ClassicGroup, "check_member", _any_member),
            (ClassicGroup, "check_generation", _nothing),
            (ClassicGroup, "commit_seen", _nothing),
        ],
        twins,
    ),
    "stale member epoch accepted": GroupMutant(
        "consumer groups take commits of any epoch, also of members that are gone",
        [(ConsumerGroup, "check_commit", _nothing)],
        consumers_come_and_go,
    ),
    "handed over before it is revoked": GroupMutant(
        "a partition goes to its next member while the last one still uses it",
        [(ConsumerGroup, "is_free", _true)],
        consumers_come_and_go,
    ),
}


def hunt_groups(name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0) -> tuple[int, str] | None:
    """How many seeds it takes to catch the mutant, and by what; None: it got away. A seed that
    fails without the mutant as well catches nothing."""
    mutant = GROUP_MUTANTS[name]
    for count, seed in enumerate(range(first, first + seeds_max), 1):
        with active(mutant.patches):
            caught = _verdict(seed, mutant.plan)
        if caught and not _verdict(seed, mutant.plan):
            return count, caught
    return None


def _verdict(seed: int, plan: Plan) -> str:
    """The first violated invariant; code that trips over its own assertion was caught as well."""
    try:
        violations = run_groups(seed, plan(seed)).violations
    except Exception as error:
        return type(error).__name__
    return violations[0].invariant if violations else ""
