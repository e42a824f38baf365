"""Runs a pipeline: settings, a session, the query until it is done or told to stop."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lograft.model.errors import InvalidConfig
from lograft.spark.lag import Lag, lag_of
from lograft.spark.pipelines.catalogue import PIPELINES
from lograft.spark.pipelines.failures import explained, is_sparks
from lograft.spark.pipelines.settings import Settings, Spark, read_settings

_LOOK_SECONDS: Final = 1
#: Spark gives the process of a source ten seconds to start, which a busy machine may not have. A
#: query goes on where it was, so it can simply be started again.
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
    try:
        _run(name, session, settings, watch or Watch())
    except Exception as error:
        if is_sparks(error):
            raise explained(error) from error
        raise
    finally:
        if spark is None:
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
    return builder.getOrCreate()


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

            audit(spark, settings, watch)
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
    for number in range(1, _STARTS_MAX + 1):
        try:
            _follow(writer.start(), watch)
        except StreamingQueryException as error:
            if _SLOW_START not in str(error) or number == _STARTS_MAX:
                raise
            watch.say("Spark gave up on a Python process that was slow to start: trying again")
        else:
            return


def _follow(query: StreamingQuery, watch: Watch) -> None:
    told = -1
    while not query.awaitTermination(_LOOK_SECONDS):
        told = _tell_news(query, told, watch)
        if watch.should_stop():
            query.stop()
            watch.say("stopped, as it was asked to; the next run goes on here")
            return
    _tell_news(query, told, watch)


def _tell_news(query: StreamingQuery, told: int, watch: Watch) -> int:
    for progress in query.recentProgress:
        if progress["batchId"] > told:
            told = progress["batchId"]
            if progress["numInputRows"]:
                watch.tell(lag_of(progress))
    return told
