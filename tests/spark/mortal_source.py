"""The sink with places to die: a task kills its own process when all is staged, the driver's side
the whole program."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lograft.spark.options import write_options
from lograft.spark.source import LograftDataSource
from lograft.spark.staging import publish
from lograft.spark.writers import StreamWriter, Written


def told_to_die(where: str) -> int | None:
    """The process id of the program, if this is the place; the order is taken."""
    order = Path(os.environ["COPY_JOB_ORDER"])
    try:
        place, pid = order.read_text().split()
        if place != where:
            return None
        order.rename(order.with_suffix(".taken"))
    except FileNotFoundError:
        return None
    return int(pid)


class MortalWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = super().write(iterator)
        if told_to_die("task") is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        program = told_to_die("driver-before-commit")
        if program is None:
            program = told_to_die("driver-half-way")
            if program is not None:
                first = next(one for one in messages if isinstance(one, Written) and one.staged)
                assert first.staged is not None
                publish(self._options, [first.staged])
        if program is None:
            super().commit(messages, batchId)
            program = told_to_die("driver-after")
        if program is not None:
            os.kill(program, signal.SIGKILL)
            signal.pause()


class MortalDataSource(LograftDataSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return MortalWriter(write_options(self.options))
