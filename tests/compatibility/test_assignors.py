"""Leaders of classic groups compute the same assignments as Java's: both get groups of many
shapes."""

import random
import subprocess
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

from lograft.client.consuming.assignors import ASSIGNORS, Assignment, Member
from lograft.client.types import TopicPartition
from tests.compatibility.servers import SMALL_JVM, java_command
from tools.kafka_jars import REPOSITORY

pytestmark = pytest.mark.interop
GROUPS: Final = 2_000
TOPICS: Final = ("t1", "t2", "t3", "t4")
RACKS: Final = ("a", "b", "c", "")


class Group(NamedTuple):
    #: Racks of the replicas of each partition.
    topics: dict[str, list[list[str]]]
    members: list[Member]

    @classmethod
    def drawn(cls, chance: random.Random) -> "Group":
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
        read = sorted(set().union(*(member.topics for member in members)))
        brokers = chance.choices(RACKS, k=chance.randint(1, 4))
        # Few numbers, so that topics often have the same number of partitions.
        counts = chance.sample(range(1, 9), 2)
        topics = {
            topic: [
                chance.sample(brokers, chance.randint(1, len(brokers)))
                for _ in range(chance.choice(counts))
            ]
            for topic in chance.sample(read, chance.randint(1, len(read)))
        }
        return cls(topics, members)

    def line(self, assignor: str) -> str:
        """The input format of tools/kafka/AssignPartitions.java."""
        topics = ";".join(
            f"{name}={','.join('.'.join(racks) for racks in partitions)}"
            for name, partitions in self.topics.items()
        )
        members = ";".join(
            f"{member.id}:{member.instance_id or ''}:{member.rack or ''}"
            + f":{','.join(sorted(member.topics))}:"
            + ",".join(f"{topic}/{index}" for topic, index in sorted(member.owned))
            for member in self.members
        )
        return f"{assignor} {topics} {members}"

    def racks(self) -> dict[TopicPartition, frozenset[str]]:
        return {
            TopicPartition(name, index): frozenset(filter(None, found))
            for name, partitions in self.topics.items()
            for index, found in enumerate(partitions)
        }

    def ours(self, assignor: str) -> Assignment:
        counts = {name: len(partitions) for name, partitions in self.topics.items()}
        return ASSIGNORS[assignor](counts, self.members, self.racks())

    def far(self, assigned: Assignment) -> int:
        """The number of partitions without a replica in the rack of their consumer."""
        racks = self.racks()
        return sum(
            member.rack is not None and member.rack not in racks[each]
            for member in self.members
            for each in assigned[member.id]
        )

    def taken(self, assigned: Assignment) -> int:
        """The number of partitions that their owners must revoke."""
        return sum(len(member.owned.difference(assigned[member.id])) for member in self.members)

    def joined(self, assigned: Assignment, member: Member) -> "Group":
        """One more member joins the others, which keep their assignments."""
        there = [
            each._replace(owned=frozenset(assigned[each.id]), generation=1) for each in self.members
        ]
        return self._replace(members=[*there, member])


def theirs(assignor: str, groups: Sequence[Group]) -> list[Assignment]:
    program = REPOSITORY / "tools" / "kafka" / "AssignPartitions.java"
    decided = subprocess.run(
        [*java_command(SMALL_JVM), str(program)],
        input="".join(f"{group.line(assignor)}\n" for group in groups),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()
    found = []
    for line in decided:
        pairs = (entry.split("=") for entry in line.split(";"))
        found.append(
            {name: [_partition(each) for each in mine.split(",") if each] for name, mine in pairs}
        )
    return found


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def _squares(assigned: Assignment) -> int:
    """Lower values are more balanced."""
    return sum(len(mine) ** 2 for mine in assigned.values())


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_every_leader_decides_alike(assignor: str) -> None:
    chance = random.Random(881)
    groups = [Group.drawn(chance) for _ in range(GROUPS)]
    for group, decided in zip(groups, theirs(assignor, groups), strict=True):
        # Java's order of topics is that of a hash table.
        expected = {name: sorted(mine) for name, mine in decided.items()}
        assert group.ours(assignor) == expected, group


def test_sticky_leaders_are_as_even_as_javas_and_bring_readers_as_near() -> None:
    """Java's result depends on the order of a hash table, so only parts of it are compared."""
    chance = random.Random(882)
    name = "cooperative-sticky"
    groups = [Group.drawn(chance) for _ in range(GROUPS)]
    first = theirs(name, groups)
    far_ours = far_theirs = 0
    for group, decided in zip(groups, first, strict=True):
        ours = group.ours(name)
        assert _squares(ours) <= _squares(decided), group
        if len({member.topics for member in group.members}) == 1:
            assert group.far(ours) <= group.far(decided), group
        far_ours += group.far(ours)
        far_theirs += group.far(decided)
    assert far_ours <= far_theirs
    grown = [
        group.joined(
            decided, Member("new", chance.choice(group.members).topics, rack=chance.choice("abc"))
        )
        for group, decided in zip(groups, first, strict=True)
    ]
    taken_ours = sum(group.taken(group.ours(name)) for group in grown)
    second = zip(grown, theirs(name, grown), strict=True)
    assert taken_ours <= sum(group.taken(decided) for group, decided in second)
