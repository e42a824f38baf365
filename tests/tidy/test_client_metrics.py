"""Client metrics have Kafka's names, and are documented."""

import re

import pytest

from tools.generate_client_metrics import (
    ABSENT,
    KINDS,
    OUTPUT,
    declared_metrics,
    declared_names,
    is_absent,
    kafka_metrics,
    page,
)


def test_the_page_of_client_metrics_is_current() -> None:
    assert OUTPUT.read_text() == page(), "run python -m tools.generate_client_metrics"


def test_each_metric_of_kafka_is_declared_or_absent_for_a_reason() -> None:
    declared = declared_names()
    missing = {each for each in kafka_metrics() if not is_absent(each.name)} - declared
    assert not missing
    assert not {each for each in declared if is_absent(each.name)}


@pytest.mark.parametrize("pattern", ABSENT)
def test_each_reason_is_for_a_metric_of_kafka(pattern: str) -> None:
    assert any(re.fullmatch(pattern, each.name) for each in kafka_metrics())


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_is_declared_twice(kind: str) -> None:
    names = [
        (metric.group.format(kind=kind), name, metric.tags)
        for metric, kinds in declared_metrics()
        if kind in kinds
        for name in metric.names
    ]
    assert len(set(names)) == len(names) > 0
