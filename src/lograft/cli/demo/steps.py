"""The steps of the demo.

It runs `lograft start` with a temporary directory, writes the orders and the web log of an
imaginary shop to the node, and counts the first orders with a consumer. Then three pipelines run on
Spark: they turn the orders into a table (lake), aggregate the web log (windows), and inspect both
topics (audit, an HTML page).

On two cores, starting Spark takes most of the time. It therefore starts in a thread while the
events are written, but only after the first result is on the screen.
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
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from lograft.cli.demo.requirements import find_missing_for_spark
from lograft.cli.demo.shop import Event, generate_orders, generate_web_log
from lograft.cli.pipelines import redirect_stderr
from lograft.client.admin import Admin, NewTopic
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition
from lograft.model.errors import LograftError
from lograft.runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: Final = 60_000
#: Number of orders that are written and counted for the first result.
FIRST_ORDERS: Final = 5_000
PARTITIONS: Final = 3
ORDERS, WEB_LOG, DEAD = "orders", "web-log", "orders.dead"
_STOP_SECONDS_MAX: Final = 20


class NodeNotStarted(LograftError):
    """`lograft start` exited before the node was listening."""


class Steps:
    """Prints the steps of the demo and measures them."""

    def __init__(self) -> None:
        self.console = Console()
        self._times: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self.console.rule(f"[bold]{name}")
        yield
        self._times.append((name, time.perf_counter() - start))

    @contextmanager
    def spinner(self, text: str) -> Iterator[None]:
        """Shows a spinner while the block runs. If the output is not a terminal, prints the text
        once."""
        if not self.console.is_terminal:
            self.console.print(f"{text} …")
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            progress.add_task(text, total=None)
            yield

    def show_times(self) -> None:
        table = Table("step", "seconds", title="Duration of each step")
        for name, seconds in self._times:
            table.add_row(name, f"{seconds:.1f}")
        self.console.print(table)


def run_demo(*, with_spark: bool) -> None:
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="lograft-node-") as data:
        with steps.step("lograft start"):
            node, address = start_node(Path(data))
            steps.console.print(f"A node is listening on {address}.")
        try:
            results = _run_steps(steps, address, with_spark=with_spark)
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(_STOP_SECONDS_MAX)
    steps.show_times()
    _show_next_steps(steps.console, results)


def _run_steps(steps: Steps, address: str, *, with_spark: bool) -> Path | None:
    """Returns the directory of Spark's results; None if Spark did not run."""
    console = steps.console
    now_ms = SystemClock().wall_ms()
    shop = generate_orders(EVENTS, now_ms)
    with steps.step("First result"):
        asyncio.run(create_topics(address))
        asyncio.run(write_events(address, ORDERS, islice(shop, FIRST_ORDERS)))
        console.print(asyncio.run(count_first_orders(address)))
    missing = find_missing_for_spark() if with_spark else []
    results: Path | None = None
    with ExitStack() as stack:
        spark: Future[SparkSession] | None = None
        if with_spark and not missing:
            results = Path(tempfile.mkdtemp(prefix="lograft-demo-"))
            stack.enter_context(spark_log(results / "spark.log", console))
            pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="spark"))
            spark = pool.submit(_start_spark)
        with steps.step("Produce"), steps.spinner("Writing the orders and the web log"):
            start = time.perf_counter()
            asyncio.run(write_events(address, ORDERS, shop))
            asyncio.run(write_events(address, WEB_LOG, generate_web_log(EVENTS, now_ms)))
            rate = (2 * EVENTS - FIRST_ORDERS) / (time.perf_counter() - start)
            console.print(f"{2 * EVENTS:,} events written and acknowledged, {rate:,.0f} per second")
            asyncio.run(consume_orders(address, "billing", EVENTS // 2))
            console.print(f"Group billing has read {EVENTS // 2:,} orders.")
        if results is not None and spark is not None:
            _run_pipelines(steps, address, results, spark)
    if missing:
        show_missing(console, missing)
    return results


def show_missing(console: Console, missing: list[str]) -> None:
    # The name of an extra, [spark], is not markup.
    console.print(f"Skipping the Spark part: {' and '.join(missing)}.", markup=False)


def start_node(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    """Returns the process and the address of its client listener."""
    node = subprocess.Popen(
        [sys.executable, "-P", "-m", "lograft", "start", "--data", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert node.stdout is not None
    output = []
    for line in node.stdout:
        output.append(line)
        if "listening on" in line:
            return node, line.split("listening on", 1)[1].split()[0]
    raise NodeNotStarted("the node of the demo did not start:\n" + "".join(output))


async def create_topics(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in (ORDERS, WEB_LOG)])
        await admin.create_topics([NewTopic(DEAD, 1)])


async def write_events(address: str, topic: str, events: Iterator[Event]) -> None:
    """Produces the events and waits until all of them are acknowledged."""
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
                        continue  # one of the truncated orders
                    revenue[order["country"]] += order["price"] * order["quantity"]
    table = Table("country", "revenue", title=f"{seen:,} orders, revenue by country")
    for country, total in revenue.most_common():
        table.add_row(country, f"{total:,.0f}")
    return table


async def consume_orders(address: str, group: str, count: int) -> None:
    """Reads and commits `count` orders, so that the audit shows a lag for this group."""
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


@contextmanager
def spark_log(file: Path, console: Console) -> Iterator[None]:
    """Redirects stderr to a file, and prints its path if an error occurs."""
    try:
        with redirect_stderr(file):
            yield
    except BaseException:
        console.print(f"Spark's log: {file}")
        raise


def _run_pipelines(
    steps: Steps, address: str, folder: Path, starting: "Future[SparkSession]"
) -> None:
    from lograft.cli.demo.shop_pipelines import shop_settings, show_lake, show_windows
    from lograft.cli.pipelines import progress_line
    from lograft.spark.pipelines.running import RunObserver, run_settings

    console = steps.console
    settings = shop_settings(address, folder)
    observer = RunObserver(
        on_batch=lambda lag: console.print(progress_line(lag)), on_message=console.print
    )
    with steps.step("Start Spark"), steps.spinner("Starting Spark"):
        spark = starting.result()
    try:
        with steps.step("Pipeline lake: turn the orders into a table"):
            with steps.spinner("Reading the orders"):
                run_settings("lake", settings["lake"], spark=spark, observer=observer)
            show_lake(spark, folder, console)
        with steps.step("Pipeline windows: aggregate the web log"):
            with steps.spinner("Reading the web log"):
                run_settings("windows", settings["windows"], spark=spark, observer=observer)
            show_windows(spark, folder, console)
        with (
            steps.step("Pipeline audit: inspect both topics and the lag of their groups"),
            steps.spinner("Reading both topics"),
        ):
            run_settings("audit", settings["audit"], spark=spark, observer=observer)
    finally:
        spark.stop()


def _show_next_steps(console: Console, results: Path | None) -> None:
    if results is not None:
        console.print(f"\nAudit report: [bold]{results / 'audit' / 'audit.html'}[/]")
        console.print(f"Table: {results / 'lake'}")
        console.print(f"Spark's log: {results / 'spark.log'}")
    console.print(
        "\nNext steps:\n"
        "  lograft start             start a node on localhost:9092, for any Kafka client\n"
        "  lograft start --nodes 3   start a cluster of three nodes\n"
        "  lograft pipeline list     list the Spark pipelines\n"
        "  lograft --help            list all commands"
    )
