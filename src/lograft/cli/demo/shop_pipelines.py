"""The pipelines of the demo: their settings, their Spark session, and their results."""

import logging
import os
import sys
import warnings
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from lograft.spark.pipelines.folders import SnapshotTable
from lograft.spark.pipelines.settings import Settings, read_settings


def shop_settings(address: str, folder: Path) -> dict[str, Settings]:
    """Returns the settings of each pipeline, as read from a TOML file."""
    source = f"""
        [source]
        bootstrap = "{address}"
    """
    texts = {
        "lake": f"""{source}
            topics = ["orders"]
            progress_group = "lake"
            [lake]
            folder = "{folder}/lake"
            dead_letter_topic = "orders.dead"
        """,
        "windows": f"""{source}
            topics = ["web-log"]
            progress_group = "windows"
            [windows]
            folder = "{folder}/windows"
            window = "5 minutes"
            watermark = "1 minute"
            group_by = ["path"]
            mode = "complete"
            [windows.aggregates]
            hits = "count(*)"
            errors = "count_if(status >= 500)"
            p95_ms = "percentile_approx(ms, 0.95)"
        """,
        "audit": f"""{source}
            topics = ["orders", "web-log"]
            [audit]
            folder = "{folder}/audit"
            hot_keys = 10
        """,
    }
    return {name: read_settings(text) for name, text in texts.items()}


def spark_session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.simplefilter("ignore")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    return (
        SparkSession.builder.master("local[2]")
        .appName("lograft demo")
        # A JVM that runs for a minute is faster without the optimizing compiler.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        # Its stages cost more than they save for 60,000 rows.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def show_lake(spark: SparkSession, folder: Path, console: Console) -> None:
    orders = spark.read.option("mergeSchema", "true").parquet(f"{folder}/lake")
    orders.createOrReplaceTempView("orders")
    console.print(f"{orders.count():,} orders in {folder}/lake")
    totals = spark.sql(
        """
        select country, count(*) orders, round(sum(price * quantity)) revenue,
               count_if(coupon <> '') coupons
        from orders group by country order by revenue desc
        """
    )
    show(totals, "Orders by country, from the table", console)


def show_windows(spark: SparkSession, folder: Path, console: Console) -> None:
    current = SnapshotTable(f"{folder}/windows/table").current_path()
    assert current is not None
    rows = spark.read.parquet(current).selectExpr(
        "date_format(window_start, 'HH:mm') `from`", "path", "hits", "errors", "p95_ms"
    )
    show(rows.orderBy("from", "path"), "The web log in windows of five minutes", console)


def show(frame: DataFrame, title: str, console: Console) -> None:
    table = Table(*frame.columns, title=title)
    for row in frame.collect():
        table.add_row(*map(str, row))
    console.print(table)
