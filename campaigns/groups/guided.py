"""Plans for mutants: faults that their safeguards protect against."""

from dataclasses import replace
from random import Random

from campaigns.cluster_plan import ClusterFault
from campaigns.groups.plan import (
    COORDINATORS,
    LONG_MS,
    ActorEvent,
    ActorPlan,
    GroupsOptions,
    Reset,
)


def _plan(seed: int, *, actors: list[ActorPlan], targets: tuple[str, ...] = ()) -> GroupsOptions:
    """Plans kills, pauses and isolations of these targets, with late requests."""
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


def _with_events(seed: int, options: GroupsOptions, kinds: tuple[str, ...]) -> GroupsOptions:
    """Adds events of these kinds for random clients."""
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
    """Isolates coordinators from other nodes, but not from clients, for less than the clients'
    timeout."""
    random = Random(f"{seed}:cut-off")
    faults = [
        ClusterFault(at_ms + random.randrange(500), "isolate", "group-coordinator", 2_300, 2)
        for at_ms in (1_000, 4_000)
    ]
    options = _plan(seed, actors=_members("classic"))
    properties = {**options.properties, "offsets.commit.timeout.ms": "6000"}
    return replace(options, faults=faults, properties=properties)


def classic_members_come_and_go(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_members("classic", 3))
    return _with_events(seed, options, ("crash", "leave", "silence", "pause"))


def consumers_come_and_go(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_members("consumer", 3))
    return _with_events(seed, options, ("crash", "leave", "silence", "pause"))


def twins(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_members("classic", 2, is_static=True))
    return _with_events(seed, options, ("twin", "twin", "silence"))


def _transactional_actors(
    *, copiers: int = 0, transfers: int = 0, version: int = 2
) -> list[ActorPlan]:
    copying = [
        ActorPlan(f"x{number}", "copier", "g-copy", "consumer", version=version)
        for number in range(1, copiers + 1)
    ]
    return [
        *copying,
        *(
            ActorPlan(f"x{number}", "transfer", version=version)
            for number in range(copiers + 1, copiers + transfers + 1)
        ),
    ]


def resets(seed: int) -> GroupsOptions:
    """Resets a live group repeatedly."""
    protocol = ("classic", "consumer")[seed % 2]
    options = _plan(seed, actors=_members(protocol))
    return replace(
        options, resets=[Reset(at_ms, f"g-{protocol}", 1) for at_ms in (1_500, 2_500, 3_500, 4_500)]
    )


def coordinators_load_slowly(seed: int) -> GroupsOptions:
    options = coordinators_die(seed)
    slow = [
        ClusterFault(at_ms, "slow-disk", node, 2_000, 1) for at_ms in (900, 3_000) for node in "123"
    ]
    faults = sorted([*options.faults, *slow], key=lambda fault: fault.at_ms)
    return replace(options, faults=faults)


def pipelines(seed: int) -> GroupsOptions:
    """Producers with the maximum of batches in flight, whose responses are lost."""
    random = Random(f"{seed}:pipelines")
    faults = [
        ClusterFault(at_ms, "reset", "leader", 1, random.randint(1, 60))
        for at_ms in range(800, 6_000, 150)
    ]
    return replace(_plan(seed, actors=[]), faults=faults, pace_ms=(1,), late_permille=0)


def transfers(seed: int) -> GroupsOptions:
    """No faults except frequent late requests."""
    return replace(_plan(seed, actors=_transactional_actors(transfers=2)), late_permille=150)


def transfer_coordinators_die(seed: int) -> GroupsOptions:
    targets = ("transaction-coordinator",)
    return _plan(seed, actors=_transactional_actors(transfers=2), targets=targets)


def one_way_coordinators(seed: int) -> GroupsOptions:
    """Cuts the links to the coordinators, but not from them: markers arrive, but no follower
    fetches the coordinator's records. Then the coordinator dies and loses its records: the next
    coordinator does not know the outcome that one partition already has, and may complete it
    differently."""
    random = Random(f"{seed}:deaf")
    options = replace(_plan(seed, actors=_transactional_actors(transfers=4)), late_permille=0)
    faults: list[ClusterFault] = []
    events: list[ActorEvent] = []
    for begin_ms in (1_200, 3_200, 5_000):
        at_ms = begin_ms + random.randrange(500)
        faults += [
            ClusterFault(at_ms, "cut-in", "transaction-coordinator", 1_000, 2),
            ClusterFault(at_ms + 300, "kill", "transaction-coordinator", 500, 1),
        ]
        # The producers that requested the end die and do not repeat the request.
        events += [
            ActorEvent(at_ms + 150 + random.randrange(150), "crash", f"x{number}", 100)
            for number in (1, 2, 3, 4)
        ]
    return replace(options, faults=faults, events=events)


def transfer_leaders_die(seed: int) -> GroupsOptions:
    """Kills leaders repeatedly while many transactions are being completed."""
    random = Random(f"{seed}:leaders-die")
    options = replace(_plan(seed, actors=_transactional_actors(transfers=5)), late_permille=0)
    faults = [
        ClusterFault(at_ms + random.randrange(300), "kill", "leader", 200, 1)
        for at_ms in range(1_000, 6_000, 1_000)
    ]
    events = [ActorEvent(5_900, "gone", f"x{number}", 1) for number in (1, 2, 3, 4)]
    return replace(options, faults=faults, events=events)


def transfers_die(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_transactional_actors(transfers=2))
    return _with_events(seed, options, ("crash", "gone", "twin", "pause"))


def transfer_twins(seed: int) -> GroupsOptions:
    """Two producers with the same transactional ID are active at the same time."""
    options = replace(_plan(seed, actors=_transactional_actors(transfers=1)), late_permille=0)
    return _with_events(seed, options, ("twin",))


def copiers_die(seed: int) -> GroupsOptions:
    options = _plan(seed, actors=_transactional_actors(copiers=2))
    return _with_events(seed, options, ("crash", "silence", "pause", "twin"))
