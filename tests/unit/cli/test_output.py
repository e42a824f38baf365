"""JSON output of commands."""

from lograft.cli.output import jsonable
from lograft.client.admin import ConfigSource
from lograft.model.types import ReplicationMode


def test_enums_are_printed_in_lower_case() -> None:
    values = [ReplicationMode.ISR, ConfigSource.STATIC_BROKER]
    assert jsonable(values) == ["isr", "static_broker"]
