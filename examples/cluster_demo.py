"""Kills leaders of a topic on three nodes, and changes its replication mode, while a producer
writes.

Run it with `make demo NODES=3`. Every record has a number. At the end the demo reads all
partitions, and prints how many acknowledged records were lost or duplicated: none.
"""

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from rich.console import Console
from rich.table import Table

TOPIC = "orders"
NODES = (1, 2, 3)
PARTITIONS = 3
#: Below the range of ports that the system assigns to clients.
FIRST_PORT = 19092
WRITE_SECONDS = 3.0
PATIENCE_SECONDS = 30.0
LOGRAFT = Path(sys.executable).with_name("lograft")
console = Console()


class Node:
    def __init__(self, node_id: int, folder: Path) -> None:
        self.node_id = node_id
        self.port = FIRST_PORT + 10 * node_id
        self.address = f"127.0.0.1:{self.port}"
        self._folder = folder / f"node-{node_id}"
        self._folder.mkdir()
        self._file = self._folder / "server.properties"
        voters = ",".join(f"{other}@127.0.0.1:{FIRST_PORT + 10 * other + 1}" for other in NODES)
        self._file.write_text(
            f"""process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.port + 1}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={self._folder / "data"}
"""
        )
        self.process: subprocess.Popen[bytes] | None = None

    def format(self, cluster_id: str) -> None:
        run("storage", "format", "-t", cluster_id, "-c", str(self._file))

    def start(self) -> None:
        with (self._folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [LOGRAFT, "server", str(self._file)], stdout=log, stderr=subprocess.STDOUT
            )

    def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_SECONDS)
            self.process = None


def run(*arguments: str) -> str:
    done = subprocess.run([LOGRAFT, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Writer(threading.Thread):
    """Sends consecutive numbers until it is stopped, and records which were acknowledged, and
    when."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, float] = {}
        self.failed: list[KafkaError] = []
        self.stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            for _ in range(20):
                self._send(number)
                number += 1
            self._producer.poll(0.01)
        self._producer.flush(PATIENCE_SECONDS)

    def _send(self, number: int) -> None:
        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acknowledged[number] = time.perf_counter()
            else:
                self.failed.append(error)

        self._producer.produce(
            TOPIC, value=b"%d" % number, partition=number % PARTITIONS, on_delivery=on_delivery
        )

    def longest_pause(self, partition: int, since: float) -> float:
        """The time between two acknowledgements of a partition."""
        times = [at for n, at in list(self.acknowledged.items()) if n % PARTITIONS == partition]
        times = [since, *sorted(at for at in times if at >= since)]
        return max(b - a for a, b in pairwise(times))


def leader_of(admin: AdminClient, partition: int) -> int:
    return int(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[partition].leader)


def wait_joined(admin: AdminClient) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(admin.list_topics(timeout=PATIENCE_SECONDS).brokers) < len(NODES):
        if time.monotonic() > deadline:
            raise SystemExit("the cluster did not become available")
        time.sleep(0.02)


def wait_in_sync(admin: AdminClient) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
        if len(partitions) == PARTITIONS and all(
            len(partition.isrs) == len(NODES) for partition in partitions
        ):
            return
        time.sleep(0.1)
    raise SystemExit("the replicas did not become in sync")


def set_mode(admin: AdminClient, mode: str) -> None:
    entry = ConfigEntry("replication.mode", mode, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)


def read_all(bootstrap: str) -> Counter[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    )
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)[1]
        for partition in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
    seen: Counter[int] = Counter()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for message in consumer.consume(5000, timeout=0.5):
            value = message.value()
            if message.error() is None and value is not None:
                seen[int(value)] += 1
        positions = consumer.position([TopicPartition(TOPIC, partition) for partition in ends])
        if all(position.offset >= ends[position.partition] for position in positions):
            break
    consumer.close()
    return seen


def kill_and_restart(nodes: dict[int, Node], admin: AdminClient, writer: Writer) -> float:
    """Returns the time without acknowledgements of the partition whose leader was killed."""
    leader = leader_of(admin, 0)
    killed_at = time.perf_counter()
    nodes[leader].end(signal.SIGKILL)
    time.sleep(WRITE_SECONDS)
    nodes[leader].start()
    wait_in_sync(admin)
    return writer.longest_pause(0, killed_at)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lograft-demo-") as folder:
        nodes = {node_id: Node(node_id, Path(folder)) for node_id in NODES}
        cluster_id = run("storage", "random-uuid")
        for node in nodes.values():
            node.format(cluster_id)
        bootstrap = ",".join(node.address for node in nodes.values())
        began = time.perf_counter()
        for node in nodes.values():
            node.start()
        try:
            show(nodes, bootstrap, began)
        finally:
            for node in nodes.values():
                if node.process is not None:
                    node.process.terminate()
            for node in nodes.values():
                node.end(signal.SIGTERM)


def show(nodes: dict[int, Node], bootstrap: str, began: float) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_joined(admin)
    topic = NewTopic(TOPIC, PARTITIONS, len(NODES), config={"min.insync.replicas": "2"})
    admin.create_topics([topic], operation_timeout=PATIENCE_SECONDS)[TOPIC].result()
    wait_in_sync(admin)
    console.print(
        f"Three nodes are running, and {TOPIC} has three replicas, after"
        f" {time.perf_counter() - began:.2f} s"
    )
    writer = Writer(bootstrap)
    writer.start()
    table = Table("while a producer writes", "longest pause", title="librdkafka on three nodes")
    for mode in ("isr", "raft"):
        if mode == "raft":
            changed_at = time.perf_counter()
            set_mode(admin, mode)
            time.sleep(WRITE_SECONDS)
            pause = max(writer.longest_pause(index, changed_at) for index in range(PARTITIONS))
            table.add_row("switched from isr to raft", f"{pause:.2f} s")
        else:
            time.sleep(WRITE_SECONDS)
        console.print(f"Killing the leader of {TOPIC}-0, in {mode} mode")
        pause = kill_and_restart(nodes, admin, writer)
        table.add_row(f"leader killed ({mode})", f"{pause:.2f} s")
    writer.stop.set()
    writer.join(PATIENCE_SECONDS)
    console.print(table)
    seen = read_all(bootstrap)
    lost = sum(number not in seen for number in writer.acknowledged)
    twice = sum(count > 1 for count in seen.values())
    console.print(
        f"{len(writer.acknowledged):,} records acknowledged,"
        f" [bold]{lost} lost, {twice} duplicated[/], {len(writer.failed)} rejected"
    )
    if lost or twice or writer.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
