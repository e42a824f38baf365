"""Names and one-line descriptions of the pipelines. Imports nothing, so that listing them is
fast."""

from typing import Final

PIPELINES: Final = {
    "lake": "write topics to a partitioned table, every record once, with dead letters",
    "windows": "aggregate over event time, into a topic or a table",
    "audit": "report the contents of topics and the lag of their groups as an HTML page",
    "state": "maintain a table of the latest value of every key",
}
