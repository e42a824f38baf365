"""Which pipelines there are, and what each is for in one line. Imports nothing: a list is quick."""

from typing import Final

PIPELINES: Final = {
    "lake": "topics become a partitioned table, every record once, bad ones set aside",
    "windows": "aggregates over event time, into a topic or a table",
    "audit": "what is in the log and who has read it: tables and an HTML page",
    "state": "the latest value of every key as a table, kept current",
}
