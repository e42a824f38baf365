"""The sink for batch and streaming writes. Spark creates a writer in the driver, sends a copy to
every task, and calls `commit` or `abort` on the driver's writer with the messages of the tasks."""

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
    """Message of a task whose rows are acknowledged, or staged for the driver to publish."""

    rows: int
    staged: PreparedTransaction | None = None


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        #: A write without a name cannot be repeated, so its name is random.
        self._name = options.name or (str(SystemRandomness().uuid()), 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, *self._name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish(self._options, _collect_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard(self._options, _collect_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch_id = _micro_batch()
        return _write(self._options, query, batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        publish(self._options, _collect_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._options, _collect_staged(messages))


def write_from_driver(options: WriteOptions, rows: pa.Table) -> None:
    """Writes a few rows exactly once, as task 0 of a named write would, without starting Spark's
    Python processes, which would take longer than the write itself."""
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


def _collect_staged(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTransaction]:
    """Returns the transactions of the completed tasks; a failed task has no message."""
    written = [message for message in messages if isinstance(message, Written)]
    return [message.staged for message in written if message.staged is not None]


def _micro_batch() -> tuple[str, int]:
    """Returns the query ID, which survives restarts, and the batch ID."""
    task = _task()
    query = task.getLocalProperty("sql.streaming.queryId")
    batch_id = task.getLocalProperty("streaming.sql.batchId")
    assert query is not None, "Spark sets the query ID of a task"
    assert batch_id is not None, "Spark sets the batch ID of a task"
    return query, int(batch_id)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a sink writes in a task"
    return task
