"""Ties a table to the query of the checkpoint next to it.

A repeated batch is recognised by its batch ID, which is unique only within a query. If the
checkpoint is removed, a new query starts with batch 0, and a table that has later batches would
silently skip its records as repeated."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from lograft.model.errors import InvalidConfig
from lograft.spark.options import write_options
from lograft.spark.pipelines.folders import Folder
from lograft.spark.writers import write_from_driver

CHECKPOINT: Final = "_checkpoint"
_QUERY: Final = "_query.json"
#: Most rows that are written through the driver's memory.
_DRIVER_ROWS_MAX: Final = 1_000


def check_checkpoint(folder: Folder) -> None:
    """Raises InvalidConfig if the folder's table was written by another query. Call it before the
    query starts."""
    owner = folder.read_json(_QUERY)
    if owner is not None and owner["id"] != _query_of(folder):
        raise InvalidConfig(
            f"the table in {folder.place} was written with a different checkpoint than"
            f" {folder.path(CHECKPOINT)}: restore that checkpoint, or use another folder to start"
            " over"
        )


def claim(folder: Folder) -> str:
    """Records the running query as the owner of the folder's table and returns its ID."""
    query = _query_of(folder)
    assert query is not None, "Spark writes the query ID before the first batch"
    if not folder.exists(_QUERY):
        folder.write_json({"id": query}, _QUERY)
    return query


def write_once(rows: DataFrame, options: Mapping[str, str], name: str, batch_id: int) -> None:
    """Writes a batch to a topic exactly once: `name` and `batch_id` identify it when it is
    repeated."""
    identity = _write_identity(name, batch_id)
    rows.write.format("lograft").mode("append").options(**options, **identity).save()


def write_cached_once(
    rows: DataFrame, options: Mapping[str, str], name: str, batch_id: int
) -> None:
    """Like `write_once`, for rows that may be computed twice and are usually few. A repeated batch
    has the same rows and therefore takes the same path."""
    first_rows = rows.limit(_DRIVER_ROWS_MAX + 1).toArrow()
    if first_rows.num_rows > _DRIVER_ROWS_MAX:
        write_once(rows, options, name, batch_id)
        return
    write_from_driver(write_options({**options, **_write_identity(name, batch_id)}), first_rows)


def _write_identity(name: str, batch_id: int) -> dict[str, str]:
    return {"delivery": "exactly-once", "txnAppId": name, "txnVersion": str(batch_id)}


def _query_of(folder: Folder) -> str | None:
    stored = folder.read_json(CHECKPOINT, "metadata")
    return None if stored is None else str(stored["id"])
