"""When a query tells how far it is, and how long what follows is held."""

from typing import Any, cast

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.types import TopicPartition
from lograft.spark.cluster import Cluster
from lograft.spark.offsets import Offsets
from lograft.spark.options import read_options
from lograft.spark.progress import Progress
from tests.support.clocks import FakeClock

WHERE = TopicPartition("t", 0)
WALL_MS = 1_000_000


class StandInCluster:
    def __init__(self, *, may_hold: bool = True) -> None:
        self.told: list[tuple[str, int, int | None]] = []
        self.checked: list[set[str]] = []
        self._may_hold = may_hold

    def tell_progress(self, group: str, offsets: Offsets, *, held_until_ms: int | None) -> None:
        self.told.append((group, offsets[WHERE], held_until_ms))

    def check_may_hold(self, group: str, topics: set[str]) -> None:
        self.checked.append(topics)
        if not self._may_hold:
            raise InvalidConfig("no")


class Telling:
    def __init__(self, *, may_hold: bool = True, **options: str) -> None:
        self.clock = FakeClock(now_ms=0, wall_offset_ms=WALL_MS)
        self.cluster = StandInCluster(may_hold=may_hold)
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}
        clock: Any = self.clock
        self._progress = Progress(read_options(given, is_streaming=True), clock)

    def tell(self, offset: int) -> None:
        self._progress.tell(cast(Cluster, self.cluster), {WHERE: offset})

    def renew(self) -> None:
        self._progress.renew(cast(Cluster, self.cluster))


def test_progress_is_told_once() -> None:
    telling = Telling(progressGroup="g")
    telling.renew()
    for offset in (0, 0, 5, 5):
        telling.tell(offset)
        telling.clock.now_ms += 10**9
        telling.renew()
    assert telling.cluster.told == [("g", 0, None), ("g", 5, None)]
    assert telling.cluster.checked == []


def test_without_a_group_nobody_is_told() -> None:
    telling = Telling()
    telling.tell(1)
    assert telling.cluster.told == []


def test_a_hold_is_renewed_while_nothing_is_read() -> None:
    telling = Telling(progressGroup="g", retentionHold="30s")
    telling.tell(7)
    telling.clock.now_ms = 9_999
    telling.tell(7)
    assert telling.cluster.told == [("g", 7, WALL_MS + 30_000)]
    telling.clock.now_ms = 10_000
    telling.renew()
    assert telling.cluster.told[1:] == [("g", 7, WALL_MS + 40_000)]
    assert telling.cluster.checked == [{"t"}], "once for each topic"


def test_a_hold_that_is_not_allowed_is_not_claimed() -> None:
    telling = Telling(may_hold=False, progressGroup="g", retentionHold="30s")
    with pytest.raises(InvalidConfig):
        telling.tell(7)
    assert telling.cluster.told == []
