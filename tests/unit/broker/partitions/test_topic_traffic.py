"""Counters of topics never decrease, and the busiest topics have separate series."""

import random
from dataclasses import dataclass, field

from lograft.broker.partitions.topic_traffic import (
    BYTES_IN,
    RANKING_MS,
    TOPICS_HERE,
    TopicTrafficTable,
)
from lograft.model.metrics import OTHER, gather_all, value_of
from tests.support.clocks import FakeClock


@dataclass
class Traffic:
    shown_max: int = 2
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.table = TopicTrafficTable(self.clock, shown_max=lambda: self.shown_max)

    def add(self, **sizes: int) -> None:
        for topic, size in sizes.items():
            self.table.of(topic).bytes_in += size

    def bytes_in(self) -> dict[str, float]:
        values = gather_all(self.table.collect_samples()).by_metric[BYTES_IN]
        return {
            topic: value for (topic,), value in values.items() if isinstance(value, float | int)
        }

    def rank(self) -> dict[str, float]:
        """Lets the next collection rank the topics; returns the values of the one after it."""
        self.clock.now_ms += RANKING_MS
        self.bytes_in()
        return self.bytes_in()


def test_topics_have_series_of_their_own_while_there_is_room() -> None:
    traffic = Traffic()
    traffic.add(a=1, b=2, c=3, d=4)
    assert traffic.bytes_in() == {"a": 1, "b": 2, OTHER: 7}
    assert value_of(traffic.table, TOPICS_HERE) == 4


def test_the_busiest_topics_get_the_series_and_others_keep_what_they_had() -> None:
    traffic = Traffic()
    traffic.add(a=1, b=2, c=30, d=40)
    assert traffic.rank() == {"c": 0, "d": 0, OTHER: 70}
    traffic.add(a=1, b=1, c=1, d=1)
    # The values of a and b in separate series are not moved to the others.
    assert traffic.bytes_in() == {"c": 1, "d": 1, OTHER: 72}


def test_a_topic_that_gets_its_series_again_continues_where_it_ended() -> None:
    traffic = Traffic(shown_max=1)
    traffic.add(a=5, b=0)
    assert traffic.bytes_in() == {"a": 5, OTHER: 0}
    traffic.add(b=100)
    assert traffic.rank() == {"b": 0, OTHER: 100}
    traffic.add(a=1_000, b=1)
    assert traffic.rank() == {"a": 5, OTHER: 1_100}
    traffic.add(a=1)
    assert traffic.bytes_in() == {"a": 6, OTHER: 1_100}


def test_a_topic_keeps_its_series_if_another_has_only_a_little_more_traffic() -> None:
    traffic = Traffic(shown_max=1)
    traffic.add(a=100, b=150)
    assert traffic.rank() == {"a": 100, OTHER: 150}


def test_a_topic_with_the_name_of_the_others_belongs_to_them() -> None:
    traffic = Traffic()
    traffic.table.of(OTHER).bytes_in += 3
    traffic.add(a=1)
    assert traffic.bytes_in() == {"a": 1, OTHER: 3}


def test_requests_for_topics_without_a_replica_here_are_counted_with_the_others() -> None:
    traffic = Traffic()
    traffic.table.find("elsewhere").bytes_in += 3
    assert traffic.bytes_in() == {OTHER: 3}
    assert value_of(traffic.table, TOPICS_HERE) == 0


def test_a_smaller_limit_applies_from_the_next_collection_on() -> None:
    traffic = Traffic()
    traffic.add(a=1, b=2)
    traffic.shown_max = 1
    traffic.bytes_in()
    assert traffic.bytes_in() == {"b": 2, OTHER: 0}
    traffic.shown_max = 0
    traffic.bytes_in()
    traffic.add(b=2)
    assert traffic.bytes_in() == {OTHER: 2}


def test_no_counter_decreases_while_thousands_of_topics_come_and_go() -> None:
    traffic = Traffic(shown_max=10)
    chance = random.Random(7)
    before: dict[str, float] = {}
    counted = 0
    living: list[str] = []
    for number in range(3_000):
        topic = f"t{number}"
        living.append(topic)
        for _ in range(3):
            size = chance.randrange(1_000)
            traffic.add(**{chance.choice(living): size})
            counted += size
        while len(living) > 30:
            traffic.table.remove(living.pop(chance.randrange(len(living))))
        if number % 20 == 0:
            traffic.clock.now_ms += RANKING_MS // 3
            values = traffic.bytes_in()
            assert len(values) <= 11
            assert values[OTHER] >= before.get(OTHER, 0)
            for shown in values.keys() & before.keys():
                assert values[shown] >= before[shown], shown
            before = values
    assert 0 < before[OTHER] < counted
    assert value_of(traffic.table, TOPICS_HERE) <= 30
