"""Compares `format("lograft")` with Spark's own `format("kafka")`: `python -m bench.spark
[--quick]`.

One Spark (local[2]) and one Lograft node with four partitions; both formats read and write the same
topics in alternating order, with fetches of equal size and with checks of CRCs. The best round is
reported: other load on the machine can only make a run slower.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench import report
from bench.subject import Subject, make_server
from lograft.client.consumer import Consumer
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition
from lograft.spark.options import read_options
from lograft.spark.stream_reader import StreamReader
from tools.kafka_jars import spark_connector_jars

PARTITIONS: Final = 4
FORMATS: Final = ("lograft", "kafka")
#: Both formats fetch as many bytes per request.
FETCH: Final = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}
#: Minimum ratio of records per second to Spark's own connector.
TARGETS: Final = {"noop": 2.0, "parquet": 1.5, "available-now": 1.3, "sink": 1.5}
LATEST_OFFSET_MS_MAX: Final = 15.0

Work = Callable[["Runs", str, str], int]
#: Records/s by workload and data, then by format.
Found = dict[tuple[str, str], dict[str, float]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer records and rounds")
    parser.add_argument("--records", type=int, help="of each topic")
    parser.add_argument("--rounds", type=int, help="number of rounds; the best is reported")
    parser.add_argument("--no-write", action="store_true", help="leave bench/results as it is")
    return parser.parse_args()


def main() -> None:
    wanted = parse()
    records = wanted.records or (1_000_000 if wanted.quick else 8_000_000)
    rounds = wanted.rounds or (2 if wanted.quick else 3)
    with tempfile.TemporaryDirectory(prefix="lograft-bench-") as folder:
        server = make_server("lograft", Path(folder, "node"))
        with server.started(), session() as spark:
            runs = Runs(spark, Subject([server]), Path(folder), records)
            found = measure(runs, rounds)
            latest_ms = latest_offset_ms(server.bootstrap)
    about = report.about_this_run("spark") | {"records": f"{records:,}", "rounds": str(rounds)}
    text = markdown(found, latest_ms, about)
    print(f"\n{text}")
    if not wanted.no_write:
        (report.FOLDER / "spark.md").write_text(text)
        rows = [{"workload": work, "data": data, **by} for (work, data), by in found.items()]
        record = {"about": about, "latest_offset_ms": latest_ms, "records_per_s": rows}
        (report.FOLDER / "spark.json").write_text(json.dumps(record, indent=1) + "\n")


@contextmanager
def session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jars = ",".join(map(str, sorted(spark_connector_jars().glob("*.jar"))))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


class Runs:
    def __init__(self, spark: SparkSession, subject: Subject, folder: Path, records: int) -> None:
        self.spark = spark
        self.subject = subject
        self.folder = folder
        self.records = records
        self._number = 0

    @property
    def base(self) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self.subject.servers[0].bootstrap, **FETCH}

    def new_name(self) -> str:
        self._number += 1
        return f"out-{self._number}"

    def table(self, kind: str, topic: str) -> DataFrame:
        return self.spark.read.format(kind).options(**self.base, subscribe=topic).load()


def noop(runs: Runs, kind: str, topic: str) -> int:
    runs.table(kind, topic).write.format("noop").mode("overwrite").save()
    return runs.records


def parquet(runs: Runs, kind: str, topic: str) -> int:
    target = runs.folder / runs.new_name()
    runs.table(kind, topic).write.parquet(str(target))
    shutil.rmtree(target)
    return runs.records


def available_now(runs: Runs, kind: str, topic: str) -> int:
    target = runs.folder / runs.new_name()
    stream = runs.spark.readStream.format(kind).options(**runs.base, subscribe=topic)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": runs.records // 2}
    writing = stream.options(**limits).load().writeStream.format("parquet")  # type: ignore[arg-type]
    writing = writing.option("path", str(target / "table"))
    writing = writing.option("checkpointLocation", str(target / "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination()
    shutil.rmtree(target)
    return runs.records


def sink(runs: Runs, kind: str, topic: str) -> int:
    """A quarter of the records, created by Spark itself: the other workloads measure reading."""
    count = runs.records // 4
    target = runs.new_name()
    runs.subject.create_topic(target, partitions=PARTITIONS, retention_bytes="-1")
    value = "repeat(cast(id % 10 as string), 100)"
    if topic == "varied":
        value = "concat(sha2(cast(id as string), 256), repeat('x', cast(id % 70 as int)))"
    key = "cast(id as string)" if topic == "varied" else "cast(null as string)"
    rows = runs.spark.range(0, count, 1, 2).selectExpr(f"{value} value", f"{key} key")
    rows.write.format(kind).options(
        **{"kafka.bootstrap.servers": runs.base["kafka.bootstrap.servers"]}, topic=target
    ).mode("append").save()
    return count


WORKLOADS: Final[dict[str, Work]] = {
    "noop": noop,
    "parquet": parquet,
    "available-now": available_now,
    "sink": sink,
}


def measure(runs: Runs, rounds: int) -> Found:
    found: Found = {}
    for data in ("constant", "varied"):
        runs.subject.create_topic(data, partitions=PARTITIONS, retention_bytes="-1")
        asyncio.run(fill(runs.subject.servers[0].bootstrap, data, runs.records))
        for name, work in WORKLOADS.items():
            best = dict.fromkeys(FORMATS, 0.0)
            for number in range(rounds):
                for kind in FORMATS if number % 2 == 0 else FORMATS[::-1]:
                    began = time.perf_counter()
                    rate = work(runs, kind, data) / (time.perf_counter() - began)
                    best[kind] = max(best[kind], rate)
                    print(f"{name:14} {data:9} {kind:8} {rate:12,.0f} records/s", flush=True)
            found[name, data] = best
    return found


async def fill(address: str, topic: str, records: int) -> None:
    """Values of a hundred bytes: identical without keys, or of varying length with keys."""
    chance = np.random.default_rng(1)
    size = 100_000
    async with Producer(bootstrap_servers=address, max_request_size=4 << 20) as producer:
        for at in range(0, records, size):
            count = min(size, records - at)
            if topic == "constant":
                table = pa.table({"value": pa.array([b"x" * 100] * count)})
            else:
                lengths = chance.integers(60, 140, count)
                offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
                data = chance.bytes(int(offsets[-1]))
                buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
                value = pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
                numbers = pa.array(chance.integers(0, 1_000_000, count)).cast(pa.string())
                table = pa.table({"key": numbers, "value": value})
            await producer.send_arrow(topic, table, batch_bytes=256 << 10)
    async with Consumer(bootstrap_servers=address) as consumer:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        begins = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
    there = sum(ends.values()) - sum(begins.values())
    assert there == records, f"{topic} holds {there:,} of {records:,} records"


def latest_offset_ms(address: str) -> float:
    """Measures how long a micro-batch waits for the latest offsets, over the connection that the
    query keeps open."""
    given = {"kafka.bootstrap.servers": address, "subscribe": "constant,varied"}
    reader = StreamReader(read_options(given, is_streaming=True))
    start = reader.initialOffset()
    times = []
    for _ in range(100):
        began = time.perf_counter()
        reader.latestOffset(start, reader.getDefaultReadLimit())
        times.append((time.perf_counter() - began) * 1000)
    reader.stop()
    return sorted(times)[len(times) // 2]


def markdown(found: Found, latest_ms: float, about: dict[str, str]) -> str:
    lines = ['# `format("lograft")` beside Spark\'s own connector, on one Lograft node', ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", "| workload | data | lograft, records/s | kafka, records/s | ratio | target | |"]
    lines.append("|---|---|---:|---:|---:|---:|---|")
    for (name, data), rates in found.items():
        ours, theirs = (rates[kind] for kind in FORMATS)
        ratio = ours / theirs
        verdict = "met" if ratio >= TARGETS[name] else "**missed**"
        lines.append(
            f"| {name} | {data} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f}"
            f" | ≥ {TARGETS[name]:g} | {verdict} |"
        )
    verdict = "met" if latest_ms <= LATEST_OFFSET_MS_MAX else "**missed**"
    lines.append(
        f"\nlatestOffset of a micro-batch, median of 100: {latest_ms:.1f} ms"
        f" (target ≤ {LATEST_OFFSET_MS_MAX:g} ms: {verdict})"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
