"""The whole story in one run: a node, a shop's events, and what Spark makes of them.

Run it with `make demo`. It starts `lograft start` in a folder of its own, streams the orders and
the web log of an invented shop into it, and runs three pipelines on Spark: the orders become a
table (lake), the web log becomes figures (windows), and the log itself is inspected
(audit, an HTML page). Without Java it stops before Spark.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from examples.shop import Event, orders, web_log
from lograft.client.admin import Admin, NewTopic
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition

EVENTS = 60_000
CHUNK = 5_000
PARTITIONS = 3
ORDERS, WEB_LOG, DEAD = "orders", "web-log", "orders.dead"
LOGRAFT = Path(sys.executable).with_name("lograft")
console = Console()
#: What each step took.
times: list[tuple[str, float]] = []


@contextmanager
def step(name: str) -> Iterator[None]:
    began = time.perf_counter()
    console.rule(f"[bold]{name}")
    yield
    times.append((name, time.perf_counter() - began))


def batched(events: Iterator[Event], size: int) -> Iterator[list[Event]]:
    while some := list(islice(events, size)):
        yield some


def start_node(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    node = subprocess.Popen(
        [LOGRAFT, "start", "--data", str(folder), "--port", "0"],
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
    raise SystemExit("the node did not start:\n" + "".join(seen))


async def create_topics(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in (ORDERS, WEB_LOG)])
        await admin.create_topics([NewTopic(DEAD, 1)])
    console.print(f"topics {ORDERS}, {WEB_LOG} with {PARTITIONS} partitions, and {DEAD}")


async def stream_events(address: str) -> None:
    began = time.perf_counter()
    now_ms = int(time.time() * 1000)
    async with Producer(bootstrap_servers=address, linger_ms=5) as producer:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("events", total=2 * EVENTS)
            for topic, events in ((ORDERS, orders), (WEB_LOG, web_log)):
                for some in batched(events(EVENTS, now_ms), CHUNK):
                    keys, values, times_ms = zip(*some, strict=True)
                    table = pa.table({"key": keys, "value": values, "timestamp": times_ms})
                    await producer.send_arrow(topic, table)
                    progress.advance(bar, len(some))
    rate = 2 * EVENTS / (time.perf_counter() - began)
    console.print(f"{2 * EVENTS:,} events written, each acknowledged, {rate:,.0f} events/s")


async def read_some(address: str, group: str, count: int) -> None:
    """A consumer that does not get to the end: the audit will find what it has not read."""
    async with Consumer(
        bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(ORDERS, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            polled = await consumer.poll(timeout_ms=1_000, max_records=count - seen)
            seen += sum(map(len, polled.values()))
        await consumer.commit()
    console.print(f"group {group} has read {seen:,} orders and gone home")


def run_pipelines(address: str, folder: Path) -> None:
    from examples.shop_pipelines import shop_settings, show_lake, show_windows, spark_session
    from lograft.cli.pipelines import line_of
    from lograft.spark.pipelines.running import Watch, run_settings

    settings = shop_settings(address, folder)
    watch = Watch(tell=lambda lag: console.print(line_of(lag)), say=console.print)
    with step("Spark starts"):
        spark = spark_session()
    try:
        with step("lake: the orders become a table"):
            run_settings("lake", settings["lake"], spark=spark, watch=watch)
            show_lake(spark, folder, console)
        with step("windows: the web log in figures"):
            run_settings("windows", settings["windows"], spark=spark, watch=watch)
            show_windows(spark, folder, console)
        with step("audit: what is in the log, and who has read it"):
            run_settings("audit", settings["audit"], spark=spark, watch=watch)
    finally:
        spark.stop()


def show_times(folder: Path, has_spark: bool) -> None:
    table = Table("step", "seconds", title="how long it took")
    for name, seconds in times:
        table.add_row(name, f"{seconds:.1f}")
    console.print(table)
    if has_spark:
        console.print(f"\nThe audit's page: [bold]{folder / 'audit' / 'audit.html'}[/]")
        console.print(f"The table: {folder / 'lake'}")
    console.print(
        "\nGo on yourself:\n"
        "  .venv/bin/lograft start --data ./data          one node on 127.0.0.1:9092\n"
        "  any Kafka client with bootstrap.servers=127.0.0.1:9092\n"
        "  .venv/bin/lograft pipeline list                docs/spark.md\n"
        "  .venv/bin/lograft --help                       everything else"
    )


def main() -> None:
    kept = Path(tempfile.mkdtemp(prefix="lograft-demo-"))
    has_java = shutil.which("java") is not None
    with tempfile.TemporaryDirectory(prefix="lograft-node-") as data:
        with step("lograft start"):
            node, address = start_node(Path(data))
            console.print(f"listening on {address}")
        try:
            with step("the shop is open"):
                asyncio.run(create_topics(address))
                asyncio.run(stream_events(address))
                asyncio.run(read_some(address, "billing", EVENTS // 2))
            if has_java:
                run_pipelines(address, kept)
            else:
                console.print("Java 17 is not installed: the pipelines on Spark are left out")
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(20)
    show_times(kept, has_java)


if __name__ == "__main__":
    main()
