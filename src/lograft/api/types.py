"""What an API module declares at its head."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: int
    #: Those of Kafka 4.3 (a test compares); what is advertised comes from the wire's table.
    versions: range
