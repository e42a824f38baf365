"""How far streams are behind: `spark.streams.addListener(LagListener())`."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from lograft.model.types import TopicPartition
from lograft.spark.offsets import Offsets, from_json

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one query after one micro-batch, over all of its topics that say where they end."""

    query: str
    batch_id: int
    rows: int
    rows_per_second: float
    #: Records there that the query has not read, by partition.
    behind: Mapping[TopicPartition, int]

    @property
    def total(self) -> int | None:
        """None: nobody has looked, as of a batch that was planned in a run before this one."""
        return sum(self.behind.values()) if self.behind else None


def lag_of(progress: Mapping[str, Any]) -> Lag:
    """`progress`: a micro-batch's report (`StreamingQueryProgress.json`)."""
    behind: Offsets = {}
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        behind.update({one: max(0, offset - end.get(one, 0)) for one, offset in latest.items()})
    return Lag(
        progress.get("name") or progress["id"],
        progress["batchId"],
        # Of the sources: with Spark Connect the sums over all of them are missing.
        sum(source.get("numInputRows") or 0 for source in progress["sources"]),
        sum(source.get("processedRowsPerSecond") or 0.0 for source in progress["sources"]),
        behind,
    )


def _offsets(told: Any) -> Offsets:
    """As JSON or as the text of it; sources of other kinds have offsets of other kinds."""
    value = json.loads(told) if isinstance(told, str) else told
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        return {}
    return from_json(value)


class LagListener(StreamingQueryListener):
    """Tells every micro-batch's lag: to `tell`, or to the log."""

    def __init__(self, tell: Callable[[Lag], None] | None = None) -> None:
        self._tell = tell or _log

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._tell(lag_of(json.loads(event.progress.json)))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def _log(lag: Lag) -> None:
    LOGGER.info(
        "%s batch %d: %d rows, %.0f rows/s, %s behind",
        lag.query,
        lag.batch_id,
        lag.rows,
        lag.rows_per_second,
        "?" if lag.total is None else lag.total,
    )
