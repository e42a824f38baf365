"""Declarations, recorders, and collections that add up, limit labels and can be interrupted."""

from collections.abc import Iterator
from typing import Final

import pytest

from lograft.model.metrics import (
    LATENCY_BUCKETS,
    OTHER,
    SLICE_SAMPLES,
    Buckets,
    Counter,
    Families,
    Gauge,
    Histogram,
    Label,
    Sample,
    enum_label,
    gather_all,
    value_of,
)

SENT: Final = Counter("lograft_sent_bytes_total", "Bytes sent.", Label("topic", 3))
OPEN: Final = Gauge("lograft_open", "Things that are open.")
WAIT: Final = Histogram("lograft_wait_seconds", "Waits.", bounds=LATENCY_BUCKETS)
COLOUR: Final = Gauge("lograft_colours", "Colours.", enum_label("colour", ("red", "green")))


def test_the_unit_is_part_of_the_name() -> None:
    assert [metric.unit for metric in (SENT, OPEN, WAIT)] == ["bytes", "", "seconds"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Counter, "lograft_sent"),
        (Gauge, "lograft_sent_total"),
        (Gauge, "open"),
        (Gauge, "lograft_A"),
    ],
)
def test_names_follow_the_conventions(kind: type[Counter | Gauge], name: str) -> None:
    with pytest.raises(AssertionError):
        kind(name, "Help.")


def test_samples_of_one_series_are_added_up() -> None:
    families = gather_all(
        iter([SENT.sample(1, "a"), OPEN.sample(2), SENT.sample(4, "b"), SENT.sample(8, "a")])
    )
    assert families.by_metric == {SENT: {("a",): 9, ("b",): 4}, OPEN: {(): 2}}


def test_histograms_count_observations_by_bucket() -> None:
    first, second = WAIT.make_recorder(), WAIT.make_recorder()
    for seconds in (0.0001, 0.0005, 0.0006, 60.0):
        first.observe(seconds)
    second.observe(60.0)
    families = gather_all(iter([WAIT.sample(first), WAIT.sample(second)]))
    (buckets,) = families.by_metric[WAIT].values()
    assert isinstance(buckets, Buckets)
    assert buckets.counts == (2, 1, *[0] * (len(LATENCY_BUCKETS) - 2), 2)
    assert buckets.sum == pytest.approx(120.0012)


def test_values_beyond_the_limit_of_a_label_are_added_up() -> None:
    samples = [SENT.sample(1, topic) for topic in "abcdeabcde"]
    series = gather_all(iter(samples)).by_metric[SENT]
    assert series == {("a",): 2, ("b",): 2, ("c",): 2, (OTHER,): 4}


def test_unknown_value_of_a_listed_label_raises() -> None:
    with pytest.raises(AssertionError):
        gather_all(iter([COLOUR.sample(1, "blue")]))


def test_collection_takes_a_limited_number_of_samples_at_once() -> None:
    taken_count = 0

    def samples() -> Iterator[Sample]:
        nonlocal taken_count
        for _ in range(2 * SLICE_SAMPLES + 1):
            taken_count += 1
            yield OPEN.sample(1)

    families = Families()
    pauses = [taken_count for _ in families.gather(samples())]
    assert pauses == [SLICE_SAMPLES, 2 * SLICE_SAMPLES]
    assert families.by_metric[OPEN][()] == 2 * SLICE_SAMPLES + 1


def test_single_value_is_read_by_metric_and_labels() -> None:
    class Sender:
        def collect_samples(self) -> Iterator[Sample]:
            yield SENT.sample(1, "a")
            yield SENT.sample(2, "b")

    assert value_of(Sender(), SENT) == 3
    assert value_of(Sender(), SENT, "b") == 2
    with pytest.raises(LookupError):
        value_of(Sender(), OPEN)
