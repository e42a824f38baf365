"""Runs a pipeline until it is complete or stopped."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from lograft.model.errors import InvalidConfig
from lograft.runtime.randomness import SystemRandomness
from lograft.spark import register
from lograft.spark.lag import Lag, lag_of
from lograft.spark.pipelines.catalogue import PIPELINES
from lograft.spark.pipelines.failures import is_spark_error, to_pipeline_failed
from lograft.spark.pipelines.settings import Settings, Spark, read_settings

_POLL_SECONDS: Final = 1
#: Spark waits ten seconds for the process of a source to start, which may be too short on a busy
#: machine. A pipeline resumes from its checkpoint, so it can simply be started again.
_SLOW_START: Final = "Python worker failed to connect back"
_STARTS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Callbacks of a run: receives the lag after each micro-batch and messages, and can stop the
    run."""

    on_batch: Callable[[Lag], None] = lambda lag: None
    on_message: Callable[[str], None] = lambda message: None
    should_stop: Callable[[], bool] = lambda: False


def run_pipeline(
    name: str, file: str, *, spark: SparkSession | None = None, observer: RunObserver | None = None
) -> None:
    """Runs the pipeline that the file describes until it is complete. Without `spark`, a session is
    created from the file's settings and stopped afterwards."""
    run_settings(name, read_settings(Path(file).read_text()), spark=spark, observer=observer)


def run_settings(
    name: str,
    settings: Settings,
    *,
    spark: SparkSession | None = None,
    observer: RunObserver | None = None,
) -> None:
    if name not in PIPELINES:
        raise InvalidConfig(f"unknown pipeline {name!r}; known pipelines: {', '.join(PIPELINES)}")
    if getattr(settings, name) is None:
        raise InvalidConfig(f"the file has no section [{name}]")
    session = spark or new_session(settings.spark, f"lograft {name}")
    if not is_remote():  # a Spark Connect server discovers the format in its own environment
        register(session)
    try:
        _run_with_retries(name, session, settings, observer or RunObserver())
    except Exception as error:
        if is_spark_error(error):
            raise to_pipeline_failed(error) from error
        raise
    finally:
        if spark is None:
            with suppress(Exception):  # a session whose JVM has exited cannot be stopped
                session.stop()


def new_session(settings: Spark, name: str) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    if settings.remote is not None:
        builder = builder.remote(settings.remote)
    else:
        # Failures are reported in one sentence; a lower log level can be set in `[spark] conf`.
        builder = (
            builder.master(settings.master)
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "FATAL")
        )
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    with _preserve_signal_handler():
        return builder.getOrCreate()


@contextmanager
def _preserve_signal_handler() -> Iterator[None]:
    """Restores the SIGINT handler, which Spark replaces: instead of the caller's clean stop, Ctrl-C
    would raise KeyboardInterrupt in the middle of a batch."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def _run_with_retries(
    name: str, spark: SparkSession, settings: Settings, observer: RunObserver
) -> None:
    for number in range(1, _STARTS_MAX + 1):
        try:
            _run(name, spark, settings, observer)
        except Exception as error:
            if not is_spark_error(error) or _SLOW_START not in str(error) or number == _STARTS_MAX:
                raise
            if observer.should_stop():
                observer.on_message("stopped on request")
                return
            observer.on_message("Spark timed out waiting for a Python process to start; retrying")
        else:
            return


def _run(name: str, spark: SparkSession, settings: Settings, observer: RunObserver) -> None:
    match name:
        case "lake":
            from lograft.spark.pipelines.lake import lake

            lake(spark, settings, observer)
        case "windows":
            from lograft.spark.pipelines.windows import windows

            windows(spark, settings, observer)
        case "audit":
            from lograft.spark.pipelines.audit import audit

            run_stoppable(spark, observer, lambda: audit(spark, settings, observer))
        case _:
            from lograft.spark.pipelines.state import state

            state(spark, settings, observer)


def stream_of(spark: SparkSession, settings: Settings) -> DataFrame:
    return spark.readStream.format("lograft").options(**settings.source.stream_options()).load()


def run_query(writer: DataStreamWriter, settings: Settings, observer: RunObserver) -> None:
    """Runs a query until it is complete, fails, or the observer stops it. The batch in progress is
    then dropped, and the next run starts with it."""
    if settings.spark.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=settings.spark.trigger)
    query = writer.start()
    last_batch = -1
    while not query.awaitTermination(_POLL_SECONDS):
        last_batch = _report_batches(query, last_batch, observer)
        if observer.should_stop():
            query.stop()
            observer.on_message("stopped on request; the next run resumes from here")
            return
    _report_batches(query, last_batch, observer)


def _report_batches(query: StreamingQuery, last_batch: int, observer: RunObserver) -> int:
    """Reports the batches after `last_batch` and returns the last reported one."""
    for progress in query.recentProgress:
        if progress["batchId"] > last_batch:
            last_batch = progress["batchId"]
            lag = lag_of(progress)
            if lag.rows:
                observer.on_batch(lag)
    return last_batch


def run_stoppable(spark: SparkSession, observer: RunObserver, work: Callable[[], object]) -> None:
    """Runs work other than a streaming query; its jobs are cancelled when the observer stops it."""
    jobs = _Jobs(spark)

    def run_tagged() -> None:
        with jobs:
            work()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(run_tagged)
        while not wait((working,), _POLL_SECONDS).done:
            if observer.should_stop():
                jobs.cancel()  # repeated, because there may be no job at this moment
    try:
        working.result()
    except Exception as error:
        if not (is_spark_error(error) and observer.should_stop()):
            raise
        observer.on_message("stopped on request")


class _Jobs:
    """Tags the jobs started by one thread so that another thread can cancel them. Session tags
    would be simpler, but without Spark Connect only the thread that set a tag can use it."""

    def __init__(self, spark: SparkSession) -> None:
        self._tag = f"lograft-{SystemRandomness().uuid()}"
        if is_remote():
            self._add, self._remove = spark.addTag, spark.removeTag
            self._cancel: Callable[[str], object] = spark.interruptTag
        else:
            context = spark.sparkContext
            self._add, self._remove = context.addJobTag, context.removeJobTag
            self._cancel = context.cancelJobsWithTag

    def __enter__(self) -> None:
        self._add(self._tag)

    def __exit__(self, *error: object) -> None:
        self._remove(self._tag)

    def cancel(self) -> None:
        self._cancel(self._tag)
