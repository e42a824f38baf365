"""The sink, for tables and for streams. Spark makes a writer in the driver, gives a copy of it to
every task, and tells the driver's to commit or to abort what the tasks report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from lograft.client import PreparedTransaction
from lograft.runtime.randomness import SystemRandomness
from lograft.spark.options import WriteOptions
from lograft.spark.sending import send_rows
from lograft.spark.staging import Slot, discard, publish, stage


@dataclass
class Written(WriterCommitMessage):
    """Of a task whose rows are acknowledged, or staged: then the driver has to publish them."""

    rows: int
    staged: PreparedTransaction | None = None


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        #: Without a name, nobody can ask for the same write again.
        self._name = options.name or (str(SystemRandomness().uuid()), 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, *self._name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish(self._options, _staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard(self._options, _staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch_id = _micro_batch()
        return _write(self._options, query, batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        publish(self._options, _staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._options, _staged(messages))


def write_from_driver(options: WriteOptions, rows: pa.Table) -> None:
    """Writes few rows exactly once, as task 0 of a named write would. For them, the Python
    processes that Spark starts for a write cost more than the write."""
    assert options.name is not None, "a write that may be repeated has a name"
    name, version = options.name
    _, staged = stage(options, Slot(name, 0), version, iter(rows.to_batches()))
    if staged is not None:
        publish(options, [staged])


def _write(
    options: WriteOptions, query: str, batch_id: int, batches: Iterator[pa.RecordBatch]
) -> Written:
    if options.delivery == "at-least-once":
        return Written(send_rows(options, batches))
    return Written(*stage(options, Slot(query, _task().partitionId()), batch_id, batches))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTransaction]:
    """Of the tasks that got so far; a task that failed has sent no message."""
    written = [one for one in messages if isinstance(one, Written)]
    return [one.staged for one in written if one.staged is not None]


def _micro_batch() -> tuple[str, int]:
    """The query's id, which outlives restarts, and the number of the batch."""
    task = _task()
    query = task.getLocalProperty("sql.streaming.queryId")
    batch_id = task.getLocalProperty("streaming.sql.batchId")
    assert query is not None, "Spark has not said of which query this task is"
    assert batch_id is not None, "Spark has not said of which batch this task is"
    return query, int(batch_id)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a sink writes in a task"
    return task
