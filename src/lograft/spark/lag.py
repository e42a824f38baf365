"""Reports the lag of streaming queries: `spark.streams.addListener(LagListener())`."""

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
    """Lag of a query after a micro-batch, over all its sources that report their latest offsets."""

    query: str
    batch_id: int
    rows: int
    rows_per_second: float
    #: Unread records by partition.
    behind: Mapping[TopicPartition, int]

    @property
    def total(self) -> int | None:
        """Returns None if the latest offsets are unknown, as for a batch planned by an earlier
        run."""
        return sum(self.behind.values()) if self.behind else None


def lag_of(progress: Mapping[str, Any]) -> Lag:
    """Returns the lag in a micro-batch's report, `StreamingQueryProgress.json`."""
    behind: Offsets = {}
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        behind.update(
            {
                partition: max(0, offset - end.get(partition, 0))
                for partition, offset in latest.items()
            }
        )
    return Lag(
        progress.get("name") or progress["id"],
        progress["batchId"],
        # Summed over the sources, because Spark Connect does not report the totals.
        sum(source.get("numInputRows") or 0 for source in progress["sources"]),
        sum(source.get("processedRowsPerSecond") or 0.0 for source in progress["sources"]),
        behind,
    )


def _offsets(reported: Any) -> Offsets:
    """Parses offsets reported as JSON or JSON text; offsets of other sources are ignored."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(value, dict) or not all(isinstance(part, dict) for part in value.values()):
        return {}
    return from_json(value)


class LagListener(StreamingQueryListener):
    """Passes the lag of every micro-batch to `on_lag`, which defaults to logging it."""

    def __init__(self, on_lag: Callable[[Lag], None] | None = None) -> None:
        self._on_lag = on_lag or _log

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._on_lag(lag_of(json.loads(event.progress.json)))

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
