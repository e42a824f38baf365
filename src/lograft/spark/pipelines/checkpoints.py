"""Which query a table belongs to: the one of the checkpoint beside it.

A batch that comes again is known by its number, and numbers are those of a query. A checkpoint that
was removed begins a new query with batch 0, which a table that has more would take for known: the
records would be passed over without a word.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from lograft.model.errors import InvalidConfig
from lograft.spark.options import write_options
from lograft.spark.pipelines.folders import Folder
from lograft.spark.writers import write_from_driver

CHECKPOINT: Final = "_checkpoint"
_QUERY: Final = "_query.json"
#: So many rows go through the driver's memory.
_FEW_ROWS_MAX: Final = 1_000


def check_checkpoint(folder: Folder) -> None:
    """Before a query begins. Raises InvalidConfig if the folder's table is of another one."""
    owner = folder.read_json(_QUERY)
    if owner is not None and owner["id"] != _query_of(folder):
        raise InvalidConfig(
            f"the table in {folder.place} was written with another checkpoint than"
            f" {folder.path(CHECKPOINT)}: bring that back, or name another folder to begin anew"
        )


def take(folder: Folder) -> str:
    """The id of the query that runs, which the folder's table belongs to from now on."""
    query = _query_of(folder)
    assert query is not None, "Spark writes a query's id before its first batch"
    if not folder.exists(_QUERY):
        folder.write_json({"id": query}, _QUERY)
    return query


def write_once(rows: DataFrame, options: Mapping[str, str], name: str, batch_id: int) -> None:
    """A batch into a topic, under a name by which the topic knows it when it comes again."""
    named = _write_name(name, batch_id)
    rows.write.format("lograft").mode("append").options(**options, **named).save()


def write_cached_once(
    rows: DataFrame, options: Mapping[str, str], name: str, batch_id: int
) -> None:
    """As `write_once`, for rows that may be computed twice and are few most of the time. A batch
    that comes again has the same rows, and so takes the same path."""
    few = rows.limit(_FEW_ROWS_MAX + 1).toArrow()
    if few.num_rows > _FEW_ROWS_MAX:
        write_once(rows, options, name, batch_id)
        return
    write_from_driver(write_options({**options, **_write_name(name, batch_id)}), few)


def _write_name(name: str, batch_id: int) -> dict[str, str]:
    return {"delivery": "exactly-once", "txnAppId": name, "txnVersion": str(batch_id)}


def _query_of(folder: Folder) -> str | None:
    stored = folder.read_json(CHECKPOINT, "metadata")
    return None if stored is None else str(stored["id"])
