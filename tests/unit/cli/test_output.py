"""JSON for programs."""

from lograft.cli.output import jsonable
from lograft.client.admin import ConfigSource
from lograft.model.types import ReplicationMode


def test_enums_are_words_in_lower_case() -> None:
    words = [ReplicationMode.ISR, ConfigSource.STATIC_BROKER]
    assert jsonable(words) == ["isr", "static_broker"]
