"""The files of packaging/monitoring are up to date and query metrics that nodes have."""

import re

from tests.support.repository import ROOT
from tools.generate_dashboard import OUTPUT, queries, text
from tools.generate_metrics import declared_metrics

METRIC = re.compile(r"\b(?:lograft|process|kafka)_[a-z_]+")


def names_of(expression: str) -> set[str]:
    return {re.sub("_(bucket|sum|count)$", "", name) for name in METRIC.findall(expression)}


def test_the_dashboard_is_current() -> None:
    assert OUTPUT.read_text() == text(), "run python -m tools.generate_dashboard"


def test_dashboard_and_alerts_query_declared_metrics() -> None:
    declared = {metric.name for metrics in declared_metrics().values() for metric in metrics}
    alerts = (ROOT / "packaging" / "monitoring" / "alerts.yaml").read_text()
    queried = set().union(*(names_of(query.expression) for query in queries()))
    queried |= set().union(
        *map(
            names_of, re.findall(r"^ +expr: ((?:.|\n)*?)\n +(?:for|labels):", alerts, re.MULTILINE)
        )
    )
    assert len(queried) >= 40
    assert queried <= declared, queried - declared
