"""docs/kafka-metrics.md names metrics that nodes have."""

import re

from tests.support.repository import ROOT
from tools.generate_metrics import declared_metrics

PAGE = ROOT / "docs" / "kafka-metrics.md"


def test_the_metrics_beside_those_of_kafka_are_declared() -> None:
    named = set(re.findall(r"`((?:lograft|process|kafka)_\w+)`", PAGE.read_text()))
    declared = {metric.name for metrics in declared_metrics().values() for metric in metrics}
    assert named
    assert named <= declared, named - declared
