"""Runs a pipeline: settings, a session, the query until it is done or told to stop."""

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
from lograft.spark.pipelines.failures import explained, is_sparks
from lograft.spark.pipelines.settings import Settings, Spark, read_settings

_LOOK_SECONDS: Final = 1
#: Spark gives the process of a source ten seconds to start, which a busy machine may not have. A
#: pipeline goes on where it was, so it can simply be started again.
_SLOW_START: Final = "Python worker failed to connect back"
_STARTS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Watch:
    """Who follows a run: hears of every micro-batch, and may want it to stop."""

    tell: Callable[[Lag], None] = lambda lag: None
    say: Callable[[str], None] = lambda sentence: None
    should_stop: Callable[[], bool] = lambda: False


def run_pipeline(
    name: str, file: str, *, spark: SparkSession | None = None, watch: Watch | None = None
) -> None:
    """Runs the pipeline that a file describes, to its end. `spark`: a session to use; without it
    one is made as the file says, and stopped afterwards."""
    run_settings(name, read_settings(Path(file).read_text()), spark=spark, watch=watch)


def run_settings(
    name: str,
    settings: Settings,
    *,
    spark: SparkSession | None = None,
    watch: Watch | None = None,
) -> None:
    if name not in PIPELINES:
        raise InvalidConfig(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}")
    if getattr(settings, name) is None:
        raise InvalidConfig(f"the file has no section [{name}]")
    session = spark or new_session(settings.spark, f"lograft {name}")
    if not is_remote():  # a Spark Connect server finds the format in its own environment
        register(session)
    try:
        _run_patiently(name, session, settings, watch or Watch())
    except Exception as error:
        if is_sparks(error):
            raise explained(error) from error
        raise
    finally:
        if spark is None:
            with suppress(Exception):  # one that has died cannot be stopped, and need not
                session.stop()


def new_session(settings: Spark, name: str) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    if settings.remote is not None:
        builder = builder.remote(settings.remote)
    else:
        # What fails is told in one sentence; `[spark] conf` has another level for who looks deeper.
        builder = (
            builder.master(settings.master)
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "FATAL")
        )
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    with _signals_kept():
        return builder.getOrCreate()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Spark would take Ctrl-C for itself: the clean stop that somebody has prepared for it would
    become a KeyboardInterrupt in the middle of a batch."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def _run_patiently(name: str, spark: SparkSession, settings: Settings, watch: Watch) -> None:
    for number in range(1, _STARTS_MAX + 1):
        try:
            _run(name, spark, settings, watch)
        except Exception as error:
            if not is_sparks(error) or _SLOW_START not in str(error) or number == _STARTS_MAX:
                raise
            if watch.should_stop():
                watch.say("stopped on request")
                return
            watch.say("Spark gave up on a Python process that was slow to start: trying again")
        else:
            return


def _run(name: str, spark: SparkSession, settings: Settings, watch: Watch) -> None:
    match name:
        case "lake":
            from lograft.spark.pipelines.lake import lake

            lake(spark, settings, watch)
        case "windows":
            from lograft.spark.pipelines.windows import windows

            windows(spark, settings, watch)
        case "audit":
            from lograft.spark.pipelines.audit import audit

            run_stoppable(spark, watch, lambda: audit(spark, settings, watch))
        case _:
            from lograft.spark.pipelines.state import state

            state(spark, settings, watch)


def stream_of(spark: SparkSession, settings: Settings) -> DataFrame:
    return spark.readStream.format("lograft").options(**settings.source.stream_options()).load()


def follow(writer: DataStreamWriter, settings: Settings, watch: Watch) -> None:
    """Runs a query until it is done, fails, or somebody wants it to stop: then the batch at hand
    is dropped, and the next run begins with it."""
    if settings.spark.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=settings.spark.trigger)
    query = writer.start()
    told = -1
    while not query.awaitTermination(_LOOK_SECONDS):
        told = _tell_news(query, told, watch)
        if watch.should_stop():
            query.stop()
            watch.say("stopped on request; the next run goes on here")
            return
    _tell_news(query, told, watch)


def _tell_news(query: StreamingQuery, told: int, watch: Watch) -> int:
    for progress in query.recentProgress:
        if progress["batchId"] > told:
            told = progress["batchId"]
            lag = lag_of(progress)
            if lag.rows:
                watch.tell(lag)
    return told


def run_stoppable(spark: SparkSession, watch: Watch, work: Callable[[], object]) -> None:
    """Work that is no query: its jobs are cancelled when somebody wants it to stop."""
    jobs = _Jobs(spark)

    def tagged() -> None:
        with jobs:
            work()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(tagged)
        while not wait((working,), _LOOK_SECONDS).done:
            if watch.should_stop():
                jobs.cancel()  # again and again: in this moment there may be none
    try:
        working.result()
    except Exception as error:
        if not (is_sparks(error) and watch.should_stop()):
            raise
        watch.say("stopped on request")


class _Jobs:
    """Those that one thread starts, for another thread to cancel. A session's own
    tags would do, but without Spark Connect only the thread that set one can use it."""

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
