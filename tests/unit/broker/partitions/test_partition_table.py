from typing import cast
from uuid import UUID

from lograft.broker.partitions.partition import Partition, PartitionHost
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.broker.partitions.topic_traffic import TopicTrafficTable
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import NodeId
from tests.support.clocks import FakeClock


class NoHost:
    """Partitions without a log do not call their host."""


def make_table() -> PartitionTable:
    return PartitionTable(TopicTrafficTable(FakeClock(), shown_max=lambda: 10))


def partition(topic: str, index: int, topic_id: int) -> Partition:
    return Partition(
        topic,
        index,
        topic_id=UUID(int=topic_id),
        me=NodeId(1),
        config=TopicConfig(),
        host=cast(PartitionHost, NoHost()),
    )


def test_partitions_are_found_by_name_and_by_id() -> None:
    table = make_table()
    partitions = [partition("a", 0, 1), partition("a", 1, 1), partition("b", 0, 2)]
    for each in partitions:
        table.add(each)
    assert list(table) == partitions
    assert len(table) == 3
    assert table.get("a", 1) is table.get_by_id(UUID(int=1), 1) is partitions[1]
    assert table.get("a", 2) is None
    assert table.get("c", 0) is None
    assert table.remove(UUID(int=2), 0) is partitions[2]
    assert table.get("b", 0) is None
    assert table.by_name.keys() == {"a"}
    assert table.remove(UUID(int=2), 0) is None


def test_a_name_belongs_to_the_newest_topic() -> None:
    table = make_table()
    old, new = partition("a", 0, 1), partition("a", 0, 2)
    table.add(old)
    table.add(new)
    assert table.get("a", 0) is new
    table.remove(UUID(int=1), 0)
    assert table.get("a", 0) is new
    assert table.of_topic(UUID(int=2)) == [new]
