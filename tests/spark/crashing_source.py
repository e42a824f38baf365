"""The sink with points at which it crashes: a task kills its own process after staging its rows,
the driver's writer kills the whole program."""

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


def claim_kill(point: str) -> int | None:
    """Returns the process ID of the program if it is to be killed at this point, once."""
    kill_file = Path(os.environ["COPY_JOB_KILL_FILE"])
    try:
        kill_point, pid = kill_file.read_text().split()
        if kill_point != point:
            return None
        kill_file.rename(kill_file.with_suffix(".claimed"))
    except FileNotFoundError:
        return None
    return int(pid)


class CrashingWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = super().write(iterator)
        if claim_kill("task") is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        program = claim_kill("driver-before-commit")
        if program is None:
            program = claim_kill("driver-half-way")
            if program is not None:
                first = next(
                    message
                    for message in messages
                    if isinstance(message, Written) and message.staged
                )
                assert first.staged is not None
                publish(self._options, [first.staged])
        if program is None:
            super().commit(messages, batchId)
            program = claim_kill("driver-after")
        if program is not None:
            os.kill(program, signal.SIGKILL)
            signal.pause()


class CrashingDataSource(LograftDataSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return CrashingWriter(write_options(self.options))
