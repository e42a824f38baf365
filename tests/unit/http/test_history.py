"""The history: points of rates, gauges and percentiles, gaps, the busiest topics, and its size."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lograft.broker.partitions.partition_table import PARTITIONS
from lograft.broker.partitions.topic_traffic import BYTES_IN, BYTES_OUT, RECORDS_IN
from lograft.http.history import BYTES_MAX, LABEL_VALUES_MAX, POINTS, STEP_MS, History
from lograft.http.history_series import SERIES, Kind
from lograft.model.health import NodeIdentity
from lograft.model.metrics import OTHER, Histogram, Sample
from lograft.runtime.process_metrics import LOOP_DELAY
from tests.support.clocks import FakeClock
from tests.support.scenarios import run_in_asyncio
from tools.generate_metrics import declared_metrics

WALL_MS = 1_790_000_000_000


class WorkClock(FakeClock):
    #: How long each collection takes.
    work_ms = 0

    def mono_ns(self) -> int:
        self.now_ms += self.work_ms
        return super().mono_ns()


class World:
    """A history whose samples a test sets."""

    def __init__(self) -> None:
        self.clock = WorkClock(7 * STEP_MS, wall_offset_ms=WALL_MS)
        self.samples: list[Sample] = []
        self.history = History(self.collect_samples, self.clock)

    def collect_samples(self) -> Iterator[Sample]:
        yield from self.samples

    def take_point(self, *samples: Sample, after_ms: int = STEP_MS) -> None:
        self.clock.now_ms += after_ms
        self.samples = list(samples)
        run_in_asyncio(self.history.take_point)

    def page(self, *names: str, points: int = POINTS) -> dict[str, Any]:
        texts = self.history.write_json(NodeIdentity(7, "c"), points=points, names=names)
        page: dict[str, Any] = json.loads("".join(texts))
        return page

    def values(self, name: str, topic: str = "", *, points: int = POINTS) -> list[float | None]:
        (found,) = (
            series
            for series in self.page(name, points=points)["series"]
            if series.get("topic", "") == topic
        )
        values: list[float | None] = found["values"]
        return values

    def topics(self) -> set[str]:
        return {series["topic"] for series in self.page("topic_in_bytes")["series"]}


@pytest.fixture
def world() -> World:
    return World()


def led(count: int) -> Sample:
    return PARTITIONS.sample(count, "leader")


def test_every_series_is_of_a_declared_metric() -> None:
    declared = {metric.name: metric for found in declared_metrics().values() for metric in found}
    for series in SERIES:
        metric = declared[series.metric]
        labels = {label.name for label in metric.labels}
        assert not series.by or series.by in labels
        assert series.where is None or series.where[0] in labels
        assert isinstance(metric, Histogram) == (series.kind is Kind.P99)
    assert len({series.name for series in SERIES}) == len(SERIES)


def test_a_page_describes_node_and_time(world: World) -> None:
    world.take_point(led(3))
    world.take_point(led(4))
    page = world.page("partitions_led")
    assert page == {
        "node_id": 7,
        "cluster_id": "c",
        "step_ms": STEP_MS,
        "end_ms": WALL_MS + world.clock.now_ms,
        "points": 2,
        "series": [{"name": "partitions_led", "unit": "1", "values": [None, 4]}],
    }
    assert {series["name"] for series in world.page()["series"]} >= {"requests", "cpu"}


def test_a_rate_is_the_growth_per_second(world: World) -> None:
    for total in (1000, 6000, 6000, 6500):
        world.take_point(RECORDS_IN.sample(total / 2, "a"), RECORDS_IN.sample(total / 2, "b"))
    assert world.values("in_records") == [None, 1000, 0, 100]
    assert world.values("topic_in_records", "a") == [None, 500, 0, 50]
    assert world.values("in_records", points=2) == [0, 100]


def test_a_counter_that_decreases_has_no_rate(world: World) -> None:
    for total in (1000, 2000, 10, 510):
        world.take_point(RECORDS_IN.sample(total, "a"))
    assert world.values("in_records") == [None, 200, None, 100]


def test_only_samples_with_the_label_count(world: World) -> None:
    for _ in range(2):
        world.take_point(led(5), PARTITIONS.sample(3, "follower"))
    assert world.values("partitions_led")[-1] == 5
    assert world.values("partitions")[-1] == 8


def test_a_percentile_is_of_the_time_since_the_last_point(world: World) -> None:
    recorder = LOOP_DELAY.make_recorder()
    recorder.observe(7.0)
    world.take_point(LOOP_DELAY.sample(recorder))
    for _ in range(100):
        recorder.observe(0.003)
    world.take_point(LOOP_DELAY.sample(recorder))
    world.take_point(LOOP_DELAY.sample(recorder))
    none, last, idle = world.values("loop_delay_p99")
    assert (none, idle) == (None, None)
    assert last == pytest.approx(0.0025 + 0.99 * 0.0025)


def test_observations_above_the_last_bucket_are_its_bound(world: World) -> None:
    recorder = LOOP_DELAY.make_recorder()
    world.take_point(LOOP_DELAY.sample(recorder))
    recorder.observe(1e6)
    world.take_point(LOOP_DELAY.sample(recorder))
    assert world.values("loop_delay_p99")[-1] == LOOP_DELAY.bounds[-1]


def test_time_without_collections_is_a_gap(world: World) -> None:
    world.take_point(led(1))
    world.take_point(led(2))
    world.take_point(led(3), after_ms=5 * STEP_MS)
    assert world.values("partitions_led") == [None, 2, None, None, None, None, 3]


def test_a_slow_collection_is_repeated_less_often_and_leaves_no_gaps(world: World) -> None:
    world.clock.work_ms = 60
    world.take_point(led(1))
    assert world.history.stride == 2
    world.take_point(led(2), after_ms=2 * STEP_MS)
    assert world.values("partitions_led") == [None, 2, 2]


def test_a_failed_collection_is_a_gap(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stopped(BaseException):
        pass

    pauses = [0.0]

    async def sleep(seconds: float) -> None:
        world.clock.now_ms += int(seconds * 1000)
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Stopped

    def collect_samples() -> Iterator[Sample]:
        yield led(2)
        raise RuntimeError("broken")

    world.take_point(led(1))
    world.history._collect_samples = collect_samples
    monkeypatch.setattr("asyncio.sleep", sleep)
    with pytest.raises(Stopped):
        run_in_asyncio(world.history.run)
    assert "could not collect metrics for the history" in caplog.text


def test_older_points_are_forgotten(world: World) -> None:
    for number in range(POINTS + 50):
        world.take_point(led(number))
    values = world.values("partitions_led")
    assert values == list(range(50, POINTS + 50))


def test_the_busiest_topics_have_series(world: World) -> None:
    totals = dict.fromkeys([OTHER, *(f"t{number}" for number in range(100))], 0)

    def grow(rate_of: Callable[[int], int]) -> None:
        for number in range(100):
            totals[f"t{number}"] += rate_of(number)
        totals[OTHER] += 10**9
        world.take_point(*(BYTES_IN.sample(total, topic) for topic, total in totals.items()))

    grow(lambda number: number)
    grow(lambda number: number)
    assert world.topics() == {f"t{number}" for number in range(100 - LABEL_VALUES_MAX, 100)}
    for _ in range(30):
        grow(lambda number: 10 * (100 - number))
    assert "t0" in world.topics()
    assert "t99" not in world.topics()
    assert len(world.topics()) == LABEL_VALUES_MAX


def test_a_deleted_topic_disappears_after_an_hour(world: World) -> None:
    for total in (0, 500):
        world.take_point(BYTES_IN.sample(total, "old"))
    world.take_point(led(1))
    assert world.values("topic_in_bytes", "old") == [None, 100, None]
    for _ in range(POINTS + 10):
        world.take_point(led(1))
    assert world.topics() == set()


def test_label_values_with_special_characters_stay_valid_json(world: World) -> None:
    topic = 'a"b\\c\nd\u2028'
    for total in (0, 500):
        world.take_point(BYTES_IN.sample(total, topic))
    assert world.topics() == {topic}


def test_the_size_of_a_full_history_is_bounded(world: World) -> None:
    """A node with 10,000 partitions of 1,000 topics, each of which has series of its own."""
    topics = [f"topic-{number:04}" for number in range(1000)]
    recorder = LOOP_DELAY.make_recorder()
    total = 0

    def collect_samples() -> Iterator[Sample]:
        nonlocal total
        total += 1000
        for _ in range(10_000):
            yield PARTITIONS.sample(1, "leader")
        for number, topic in enumerate(topics):
            for metric in (BYTES_IN, RECORDS_IN, BYTES_OUT):
                yield metric.sample(total + number * total, topic)
        yield LOOP_DELAY.sample(recorder)

    tracemalloc.start()
    try:
        history = History(collect_samples, world.clock)
        for _ in range(5):
            world.clock.now_ms += STEP_MS
            run_in_asyncio(history.take_point)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < BYTES_MAX, size
    written = "".join(history.write_json(NodeIdentity(7, "c"), points=POINTS, names=()))
    assert written.count('"topic_in_bytes"') == LABEL_VALUES_MAX
