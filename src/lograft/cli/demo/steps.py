"""The steps of the demo.

It runs `lograft start` on a folder of its own, writes the orders and the web log of an invented
shop to it, and counts the first orders with a consumer. Then three pipelines run on Spark: the
orders become a table (lake), the web log is aggregated (windows), and the log itself is inspected
(audit, an HTML page).

On two cores, most of the demo is Spark's start. So it starts in a thread while the shop still
writes, but only after the first result is on the screen.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from lograft.cli.demo.requirements import find_missing_for_spark
from lograft.cli.demo.shop import Event, orders, web_log
from lograft.client.admin import Admin, NewTopic
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition
from lograft.model.errors import LograftError
from lograft.runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: Final = 60_000
#: So many orders are written and counted before anything else happens.
FIRST_ORDERS: Final = 5_000
PARTITIONS: Final = 3
ORDERS, WEB_LOG, DEAD = "orders", "web-log", "orders.dead"
_STOP_SECONDS_MAX: Final = 20


class NodeNotStarted(LograftError):
    """`lograft start` ended before it was listening."""


class Steps:
    """Prints the steps of the demo and measures them."""

    def __init__(self) -> None:
        self.console = Console()
        self._times: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self.console.rule(f"[bold]{name}")
        yield
        self._times.append((name, time.perf_counter() - began))

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """A line that moves while something takes its time. Where the output is no terminal, the
        line is printed once."""
        if not self.console.is_terminal:
            self.console.print(f"{text} …")
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            progress.add_task(text, total=None)
            yield

    def show_times(self) -> None:
        table = Table("step", "seconds", title="how long it took")
        for name, seconds in self._times:
            table.add_row(name, f"{seconds:.1f}")
        self.console.print(table)


def run_demo(*, with_spark: bool) -> None:
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="lograft-node-") as data:
        with steps.step("lograft start"):
            node, address = start_node(Path(data))
            steps.console.print(f"One node is listening on {address}.")
        try:
            results = _run_steps(steps, address, with_spark=with_spark)
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(_STOP_SECONDS_MAX)
    steps.show_times()
    _show_next_steps(steps.console, results)


def _run_steps(steps: Steps, address: str, *, with_spark: bool) -> Path | None:
    """Returns the folder with Spark's results, if there are any."""
    console = steps.console
    now_ms = SystemClock().wall_ms()
    shop = orders(EVENTS, now_ms)
    with steps.step("the first result"):
        asyncio.run(create_topics(address))
        asyncio.run(write_events(address, ORDERS, islice(shop, FIRST_ORDERS)))
        console.print(asyncio.run(count_first_orders(address)))
    missing = find_missing_for_spark() if with_spark else []
    uses_spark = with_spark and not missing
    with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
        spark = pool.submit(_start_spark) if uses_spark else None
        with steps.step("the shop is open"), steps.busy("The shop writes its orders and web log"):
            began = time.perf_counter()
            asyncio.run(write_events(address, ORDERS, shop))
            asyncio.run(write_events(address, WEB_LOG, web_log(EVENTS, now_ms)))
            rate = (2 * EVENTS - FIRST_ORDERS) / (time.perf_counter() - began)
            console.print(f"{2 * EVENTS:,} events written and acknowledged, {rate:,.0f} a second")
            asyncio.run(read_some(address, "billing", EVENTS // 2))
            console.print(f"Group billing has read {EVENTS // 2:,} orders.")
        if spark is not None:
            return _run_pipelines(steps, address, spark)
    if missing:
        console.print(f"The demo ends before its Spark part: {' and '.join(missing)}.")
    return None


def start_node(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    """Returns the process and the address of its clients."""
    node = subprocess.Popen(
        [sys.executable, "-P", "-m", "lograft", "start", "--data", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert node.stdout is not None
    seen = []
    for line in node.stdout:
        seen.append(line)
        if "listening on" in line:
            return node, line.split("listening on", 1)[1].split()[0]
    raise NodeNotStarted("the node of the demo did not start:\n" + "".join(seen))


async def create_topics(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in (ORDERS, WEB_LOG)])
        await admin.create_topics([NewTopic(DEAD, 1)])


async def write_events(address: str, topic: str, events: Iterator[Event]) -> None:
    """Returns when all of them are acknowledged."""
    async with Producer(bootstrap_servers=address, linger_ms=5) as producer:
        for event in events:
            await producer.enqueue(
                topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms
            )
        await producer.flush()


async def count_first_orders(address: str) -> Table:
    revenue: Counter[str] = Counter()
    async with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(ORDERS, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < FIRST_ORDERS:
            for records in (await consumer.poll(timeout_ms=1_000)).values():
                seen += len(records)
                for record in records:
                    try:
                        order = json.loads(record.value)
                    except ValueError:
                        continue  # one of those that are cut short on purpose
                    revenue[order["country"]] += order["price"] * order["quantity"]
    table = Table("country", "revenue", title=f"{seen:,} orders, counted by a consumer")
    for country, total in revenue.most_common():
        table.add_row(country, f"{total:,.0f}")
    return table


async def read_some(address: str, group: str, count: int) -> None:
    """A consumer that stops before the end: the audit finds what it has not read."""
    async with Consumer(
        bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(ORDERS, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            polled = await consumer.poll(timeout_ms=1_000, max_records=count - seen)
            seen += sum(map(len, polled.values()))
        await consumer.commit()


def _start_spark() -> "SparkSession":
    from lograft.cli.demo.shop_pipelines import spark_session

    return spark_session()


def _run_pipelines(steps: Steps, address: str, starting: "Future[SparkSession]") -> Path:
    from lograft.cli.demo.shop_pipelines import shop_settings, show_lake, show_windows
    from lograft.cli.pipelines import line_of
    from lograft.spark.pipelines.running import RunObserver, run_settings

    console = steps.console
    folder = Path(tempfile.mkdtemp(prefix="lograft-demo-"))
    settings = shop_settings(address, folder)
    observer = RunObserver(
        on_batch=lambda lag: console.print(line_of(lag)), on_message=console.print
    )
    with steps.step("Spark starts"), steps.busy("Spark is starting"):
        spark = starting.result()
    try:
        with steps.step("lake: the orders become a table"):
            with steps.busy("Spark reads the orders"):
                run_settings("lake", settings["lake"], spark=spark, observer=observer)
            show_lake(spark, folder, console)
        with steps.step("windows: the web log in figures"):
            with steps.busy("Spark reads the web log"):
                run_settings("windows", settings["windows"], spark=spark, observer=observer)
            show_windows(spark, folder, console)
        with (
            steps.step("audit: what is in the log, and who has read it"),
            steps.busy("Spark inspects both topics"),
        ):
            run_settings("audit", settings["audit"], spark=spark, observer=observer)
    finally:
        spark.stop()
    return folder


def _show_next_steps(console: Console, results: Path | None) -> None:
    if results is not None:
        console.print(f"\nThe audit's page: [bold]{results / 'audit' / 'audit.html'}[/]")
        console.print(f"The table: {results / 'lake'}")
    console.print(
        "\nWhat to try next:\n"
        "  lograft start             one node on localhost:9092, for any Kafka client\n"
        "  lograft start --nodes 3   a cluster of three\n"
        "  lograft pipeline list     the pipelines on Spark\n"
        "  lograft --help            everything else"
    )
