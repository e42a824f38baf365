"""One node, one topic, some thousands of records through a client that nobody here wrote.

Run it with `make demo`. It starts `lograft start` in a folder of its own, uses librdkafka
(confluent-kafka) to create a topic, produce and consume, prints what it saw, and stops the node.
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.progress import track
from rich.table import Table

RECORDS = 50_000
PARTITIONS = 3
TOPIC = "orders"
LOGRAFT = Path(sys.executable).with_name("lograft")
console = Console()


def start_node(folder: Path) -> tuple["subprocess.Popen[str]", str, float]:
    began = time.perf_counter()
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
            return node, line.split("listening on", 1)[1].split()[0], time.perf_counter() - began
    raise SystemExit("the node did not start:\n" + "".join(seen))


def create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
    console.print(f"created topic {TOPIC} with {PARTITIONS} partitions")


def produce(address: str) -> float:
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
    began = time.perf_counter()
    for number in track(range(RECORDS), description="producing", console=console):
        producer.produce(
            TOPIC, key=f"customer-{number % 997}", value=f"order {number}", on_delivery=on_delivery
        )
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(30)
    if failed:
        raise SystemExit(f"{len(failed)} records were refused, the first with: {failed[0]}")
    return time.perf_counter() - began


def consume(address: str) -> float:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    began = time.perf_counter()
    seen = 0
    deadline = began + 30
    while seen < RECORDS and time.perf_counter() < deadline:
        seen += len(consumer.consume(5000, timeout=1.0))
    took = time.perf_counter() - began
    consumer.close()
    if seen != RECORDS:
        raise SystemExit(f"produced {RECORDS} records but read {seen}")
    return took


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lograft-demo-") as folder:
        node, address, start_seconds = start_node(Path(folder))
        try:
            console.print(f"[bold]lograft start[/] is up on {address} after {start_seconds:.2f} s")
            create_topic(address)
            produced, consumed = produce(address), consume(address)
            table = Table("", "records", "seconds", "records/s", title="librdkafka on Lograft")
            for name, seconds in (("produced (idempotent)", produced), ("consumed", consumed)):
                table.add_row(name, f"{RECORDS:,}", f"{seconds:.2f}", f"{RECORDS / seconds:,.0f}")
            console.print(table)
            segment = next(Path(folder).glob(f"{TOPIC}-0/*.log"))
            console.print(f"{segment.parent.name}/{segment.name} in the words of dump-log:")
            dump = [str(LOGRAFT), "dump-log", "--files", str(segment)]
            shown = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
            console.print(*shown.splitlines()[1:4], sep="\n", soft_wrap=True, highlight=False)
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(20)
    console.print(
        "\nGo on yourself:\n"
        "  .venv/bin/lograft start --data ./data          one node on 127.0.0.1:9092\n"
        "  any Kafka client with bootstrap.servers=127.0.0.1:9092\n"
        "  .venv/bin/lograft --help                       everything else"
    )


if __name__ == "__main__":
    main()
