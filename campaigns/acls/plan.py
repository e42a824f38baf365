"""The decisions of a seed: those of a cluster, and when ACLs are created and deleted."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from campaigns import cluster_plan
from campaigns.cluster_plan import ClusterOptions
from lograft.security.acls import ALL_OPERATIONS, ALL_USERS, WILDCARD, AclPermission, PatternType
from lograft.security.authorization import Operation, ResourceType

#: Machines of clients, and the principals whose requests they send.
PRINCIPALS: Final = {
    "alice1": "User:alice",
    "alice2": "User:alice",
    "bob": "User:bob",
    "carol": "User:carol",
}
GROUPS: Final = ("team-a", "team-b")
#: Nodes and administrators: connections of all other machines.
SUPER_USER: Final = "User:ANONYMOUS"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: Names and prefixes that match some of the topics sync, lazy and keyed.
TOPIC_PATTERNS: Final = (
    ("sync", PatternType.LITERAL), ("lazy", PatternType.LITERAL), (WILDCARD, PatternType.LITERAL),
    ("sync", PatternType.PREFIXED), ("sy", PatternType.PREFIXED), ("l", PatternType.PREFIXED),
    ("la", PatternType.PREFIXED), ("lazy-", PatternType.PREFIXED),
)  # fmt: skip
GROUP_PATTERNS: Final = (
    ("team-a", PatternType.LITERAL), ("team-b", PatternType.LITERAL),
    (WILDCARD, PatternType.LITERAL), ("team-", PatternType.PREFIXED), ("t", PatternType.PREFIXED),
)  # fmt: skip
TOPIC_OPERATIONS: Final = (
    Operation.READ, Operation.READ, Operation.WRITE, Operation.WRITE, Operation.DESCRIBE,
    ALL_OPERATIONS,
)  # fmt: skip
GROUP_OPERATIONS: Final = (Operation.READ, Operation.READ, Operation.DESCRIBE, ALL_OPERATIONS)
DENY_CHANCE: Final = 0.25
#: Average interval between two changes of the ACLs.
CHANGE_MS: Final = 120


@dataclass(frozen=True, slots=True)
class AclChange:
    at_ms: int
    #: Deletes this ACL instead of creating it.
    is_deletion: bool
    #: The fields of an `Acl`.
    acl: tuple[int, str, int, str, str, int, int]


@dataclass(slots=True)
class AclOptions(ClusterOptions):
    changes: list[AclChange] = field(default_factory=list)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "AclOptions":
        options = cls(**values)
        options.restore()
        options.changes = [
            AclChange(each["at_ms"], each["is_deletion"], tuple(each["acl"]))
            for each in values["changes"]
        ]
        return options


def draw_options(seed: int) -> AclOptions:
    random = Random(f"{seed}:acl-options")
    seconds = random.choice((4, 6, 9))
    durable = random.random() < 0.15
    return AclOptions(
        nodes=3,
        split_roles=random.random() < 0.2,
        is_static=random.random() < 0.3,
        seconds=seconds,
        policy=random.choice(("uniform", "uniform", "pct", "fifo")),
        properties=properties(random),
        modes=(random.choice(cluster_plan.MODES), random.choice(cluster_plan.MODES)),
        durable=durable,
        faults=cluster_plan.draw_faults(
            random, seconds, random.choice((0, 2, 3, 5)), durable=durable
        ),
        steps=cluster_plan.draw_steps(random, seconds, random.choice((0, 0, 2))),
        pace_ms=random.choice(((1, 20, 100), (20, 200))),
        changes=draw_changes(random, seconds),
    )


def properties(random: Random) -> dict[str, str]:
    return {
        "authorizer.class.name": AUTHORIZER,
        "super.users": SUPER_USER,
        "allow.everyone.if.no.acl.found": random.choice(("true", "true", "false")),
        "offsets.topic.num.partitions": "2",
        "metadata.log.max.record.bytes.between.snapshots": str(random.choice((2_000, 20_000_000))),
    }


def draw_changes(random: Random, seconds: int) -> list[AclChange]:
    """Draws deletions of earlier ACLs as often as new ACLs, so that permissions come and go."""
    changes: list[AclChange] = []
    known: list[tuple[int, str, int, str, str, int, int]] = []
    at_ms = 0
    while at_ms < seconds * 1_000:
        if len(known) > 3 and random.random() < 0.5:
            acl = known.pop(random.randrange(len(known)))
            changes.append(AclChange(at_ms, True, acl))
        else:
            acl = _draw_acl(random)
            if acl not in known:
                known.append(acl)
            changes.append(AclChange(at_ms, False, acl))
        at_ms += random.randrange(1, 2 * CHANGE_MS)
    return changes


def _draw_acl(random: Random) -> tuple[int, str, int, str, str, int, int]:
    is_topic = random.random() < 0.7
    name, pattern_type = random.choice(TOPIC_PATTERNS if is_topic else GROUP_PATTERNS)
    return (
        int(ResourceType.TOPIC if is_topic else ResourceType.GROUP),
        name,
        int(pattern_type),
        random.choice((*sorted(set(PRINCIPALS.values())), ALL_USERS, ALL_USERS)),
        random.choice((WILDCARD, WILDCARD, WILDCARD, "alice1", "bob")),
        int(random.choice(TOPIC_OPERATIONS if is_topic else GROUP_OPERATIONS)),
        int(AclPermission.DENY if random.random() < DENY_CHANCE else AclPermission.ALLOW),
    )
