"""Tests of when a query commits its progress and renews its retention hold."""

from typing import Any, cast

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.types import TopicPartition
from lograft.spark.cluster import Cluster
from lograft.spark.offsets import Offsets
from lograft.spark.options import read_options
from lograft.spark.progress import Progress
from tests.support.clocks import FakeClock

PARTITION = TopicPartition("t", 0)
WALL_MS = 1_000_000


class FakeCluster:
    def __init__(self, *, allows_hold: bool = True) -> None:
        self.commits: list[tuple[str, int, int | None]] = []
        self.checked: list[set[str]] = []
        self._allows_hold = allows_hold

    def commit_progress(self, group: str, offsets: Offsets, *, held_until_ms: int | None) -> None:
        self.commits.append((group, offsets[PARTITION], held_until_ms))

    def check_hold_allowed(self, group: str, topics: set[str]) -> None:
        self.checked.append(topics)
        if not self._allows_hold:
            raise InvalidConfig("no")


class ProgressOfQuery:
    def __init__(self, *, allows_hold: bool = True, **options: str) -> None:
        self.clock = FakeClock(now_ms=0, wall_offset_ms=WALL_MS)
        self.cluster = FakeCluster(allows_hold=allows_hold)
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}
        clock: Any = self.clock
        self._progress = Progress(read_options(given, is_streaming=True), clock)

    def commit(self, offset: int) -> None:
        self._progress.commit(cast(Cluster, self.cluster), {PARTITION: offset})

    def renew(self) -> None:
        self._progress.renew(cast(Cluster, self.cluster))


def test_unchanged_offsets_are_committed_once() -> None:
    progress = ProgressOfQuery(progressGroup="g")
    progress.renew()
    for offset in (0, 0, 5, 5):
        progress.commit(offset)
        progress.clock.now_ms += 10**9
        progress.renew()
    assert progress.cluster.commits == [("g", 0, None), ("g", 5, None)]
    assert progress.cluster.checked == []


def test_nothing_is_committed_without_a_group() -> None:
    progress = ProgressOfQuery()
    progress.commit(1)
    assert progress.cluster.commits == []


def test_hold_is_renewed_while_no_records_are_read() -> None:
    progress = ProgressOfQuery(progressGroup="g", retentionHold="30s")
    progress.commit(7)
    progress.clock.now_ms = 9_999
    progress.commit(7)
    assert progress.cluster.commits == [("g", 7, WALL_MS + 30_000)]
    progress.clock.now_ms = 10_000
    progress.renew()
    assert progress.cluster.commits[1:] == [("g", 7, WALL_MS + 40_000)]
    assert progress.cluster.checked == [{"t"}], "once for each topic"


def test_hold_that_the_topic_does_not_allow_is_not_committed() -> None:
    progress = ProgressOfQuery(allows_hold=False, progressGroup="g", retentionHold="30s")
    with pytest.raises(InvalidConfig):
        progress.commit(7)
    assert progress.cluster.commits == []
