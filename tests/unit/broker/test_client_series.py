from math import nan
from typing import Any

import pytest

from lograft.broker.client_series import (
    LABELS_MAX,
    NAMES_MAX,
    ClientSeries,
    label_name,
    metric_name,
)
from lograft.http.exposition import write_families
from lograft.model.metrics import gather_all
from lograft.wire.otlp import Point

KAFKA = "org.apache.kafka."


def text_of(*clients: tuple[str, str, tuple[Point, ...]], openmetrics: bool = True) -> list[str]:
    series = ClientSeries()
    for _, _, points in clients:
        series.add(points)
    families = gather_all(series.collect_samples(clients))
    text = "".join(write_families(families, openmetrics=openmetrics))
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("name", "counter", "gauge"),
    [
        (
            f"{KAFKA}producer.record.send.total",
            "producer_record_send_total",
            "producer_record_send",
        ),
        (f"{KAFKA}consumer.fetch.rate", "consumer_fetch_rate_total", "consumer_fetch_rate"),
        ("librdkafka.X-y..z", "librdkafka_x_y_z_total", "librdkafka_x_y_z"),
        ("9lives", "n9lives_total", "n9lives"),
        ('\n"}', "unnamed_total", "unnamed"),
    ],
)
def test_names_are_valid(name: str, counter: str, gauge: str) -> None:
    assert metric_name(name, is_counter=True) == f"kafka_client_{counter}"
    assert metric_name(name, is_counter=False) == f"kafka_client_{gauge}"


def test_labels_are_valid_and_cannot_replace_those_of_the_broker() -> None:
    names = ["node-id", "topic", "client_id", "client.instance.id", "__x", "1", "ü"]
    assert [label_name(name) for name in names] == ["node_id", "topic", "", "", "x", "", ""]


def test_series_have_the_labels_of_their_metric() -> None:
    points: tuple[Point, ...] = (
        Point("m", (("topic", 'a"\n\\'),), 1.5),
        Point("m", (("partition", "0"), ("client_id", "faked")), 2),
        Point("m", (), nan),
        Point("n", (), -1, is_counter=True),
        Point("n", (("topic", "t"),), 1, is_counter=True),
    )
    start = 'kafka_client_m{client_id="c",client_instance_id="i"'
    assert text_of(("c", "i", points)) == [
        start + ',partition="",topic="a\\"\\n\\\\"} 1.5',
        start + ',partition="0",topic=""} 2',
        'kafka_client_n_total{client_id="c",client_instance_id="i",topic="t"} 1',
    ]


def test_clients_with_different_labels_share_a_metric() -> None:
    first = ("a", "1", (Point("m", (("x", "1"),), 1),))
    second = ("b", "2", (Point("m", (("y", "2"),), 2),))
    assert text_of(first, second) == [
        'kafka_client_m{client_id="a",client_instance_id="1",x="1",y=""} 1',
        'kafka_client_m{client_id="b",client_instance_id="2",x="",y="2"} 2',
    ]


def test_names_and_labels_are_bounded() -> None:
    series = ClientSeries()
    points = [Point(f"m{number}", (), 1) for number in range(NAMES_MAX + 10)]
    series.add(points)
    assert len(list(series.collect_samples([("c", "i", tuple(points))]))) == NAMES_MAX
    series.remove(points)
    many: list[Any] = [Point("m", ((f"l{number}", "v"),), 1) for number in range(LABELS_MAX + 9)]
    series.add(many)
    samples = list(series.collect_samples([("c", "i", tuple(many))]))
    assert {len(sample.labels) for sample in samples} == {2 + LABELS_MAX}
    series.remove(many)
    assert list(series.collect_samples([("c", "i", tuple(many))])) == []
