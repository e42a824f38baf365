"""Leaders of classic groups decide as Java's do: groups of any shape are given to both."""

import random
import subprocess
from typing import Final, NamedTuple

import pytest

from lograft.client.consuming.assignors import ASSIGNORS, Member
from lograft.client.types import TopicPartition
from tests.compatibility.servers import SMALL_JVM, java_command
from tools.kafka_jars import REPOSITORY

pytestmark = pytest.mark.interop
GROUPS: Final = 2_000
TOPICS: Final = ("t1", "t2", "t3", "t4")
RACKS: Final = ("a", "b", "c", "")


class Group(NamedTuple):
    assignor: str
    #: Racks of the replicas of each partition.
    topics: dict[str, list[list[str]]]
    members: list[Member]

    @classmethod
    def drawn(cls, chance: random.Random) -> "Group":
        brokers = chance.choices(RACKS, k=chance.randint(1, 4))
        # Few numbers, so that topics often have equally many.
        counts = chance.sample(range(1, 9), 2)
        topics = {
            topic: [
                chance.sample(brokers, chance.randint(1, len(brokers)))
                for _ in range(chance.choice(counts))
            ]
            for topic in chance.sample(TOPICS, chance.randint(1, len(TOPICS)))
        }
        interests = [frozenset(TOPICS), frozenset(chance.sample(TOPICS, 2))]
        members = [
            Member(
                f"m{number}",
                chance.choice(interests),
                instance_id=chance.choice((None, f"i{9 - number}")),
                rack=chance.choice((*RACKS, "elsewhere")) or None,
            )
            for number in chance.sample(range(9), chance.randint(1, 5))
        ]
        return cls(chance.choice(("range", "roundrobin")), topics, members)

    def line(self) -> str:
        """As tools/kafka/AssignPartitions.java reads it."""
        topics = ";".join(
            f"{name}={','.join('.'.join(racks) for racks in partitions)}"
            for name, partitions in self.topics.items()
        )
        members = ";".join(
            f"{one.id}:{one.instance_id or ''}:{one.rack or ''}:{','.join(sorted(one.topics))}"
            for one in self.members
        )
        return f"{self.assignor} {topics} {members}"

    def ours(self) -> str:
        racks = {
            TopicPartition(name, index): frozenset(filter(None, found))
            for name, partitions in self.topics.items()
            for index, found in enumerate(partitions)
        }
        counts = {name: len(partitions) for name, partitions in self.topics.items()}
        assigned = ASSIGNORS[self.assignor](counts, self.members, racks)
        return _shown({name: list(map(str, mine)) for name, mine in assigned.items()})


def _shown(assigned: dict[str, list[str]]) -> str:
    """Which partitions; Java's order among topics is that of a hash table."""
    return ";".join(f"{name}={','.join(sorted(assigned[name]))}" for name in sorted(assigned))


def test_every_leader_decides_alike() -> None:
    chance = random.Random(881)
    groups = [Group.drawn(chance) for _ in range(GROUPS)]
    program = REPOSITORY / "tools" / "kafka" / "AssignPartitions.java"
    decided = subprocess.run(
        [*java_command(SMALL_JVM), str(program)],
        input="".join(f"{group.line()}\n" for group in groups),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()
    for group, line in zip(groups, decided, strict=True):
        pairs = (entry.split("=") for entry in line.split(";"))
        theirs = _shown({name: [one for one in mine.split(",") if one] for name, mine in pairs})
        assert group.ours() == theirs, group
