"""Three nodes under kill, pause and partition while clients write and read: nothing acknowledged is
lost, nothing is there twice, everything lies in order. The same on Apache Kafka for comparison.

LOGRAFT_CHAOS_CLUSTER_SECONDS says how long each kind of cluster is tormented (1200 for the figures
that are published), LOGRAFT_CHAOS_CLUSTERS which kinds: a comma list of isr, raft, kafka.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from lograft.simulation.history import History
from tests.chaos.cluster_client import ClusterRun
from tests.chaos.cluster_nemesis import ClusterNemesis, plan
from tests.chaos.networks import Network, can_make_networks
from tests.chaos.producers import DRAIN_SECONDS_MAX, LibrdkafkaProducer, RetryingProducer
from tests.chaos.raw_client import RawClient
from tests.chaos.readers import LibrdkafkaReader, RawReader
from tests.chaos.topics import Topic
from tests.chaos.verdict import judge, read_everything, read_everything_again
from tests.compatibility.clusters import NODES, Cluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

KINDS: Final = ("isr", "raft", "kafka")
CHOSEN: Final = os.environ.get("LOGRAFT_CHAOS_CLUSTERS", "isr").split(",")
PARTITIONS: Final = 3


def topics_of(kind: str) -> list[Topic]:
    mode = {"replication.mode": "raft"} if kind == "raft" else {}
    return [
        Topic("plain", PARTITIONS, {"min.insync.replicas": "2", **mode}),
        Topic("alone", PARTITIONS, {"min.insync.replicas": "2", **mode}),
    ]


def clients(run: ClusterRun, topics: list[Topic]) -> list[threading.Thread]:
    plain, alone = topics
    partitions = [tp for topic in topics for tp in topic.of_partitions()]
    return [
        LibrdkafkaProducer(run, 0, [plain]),
        LibrdkafkaProducer(run, 1, [plain], settings={"compression.type": "lz4"}),
        LibrdkafkaProducer(run, 2, [plain], idempotent=False, pause_seconds=0.1),
        *(
            # A replica that cut its log begins with a snapshot, which knows the newest batch only.
            RetryingProducer(run, 3 + tp.partition, alone, tp, patience_seconds=120, remembered=1)
            for tp in alone.of_partitions()
        ),
        LibrdkafkaReader(run, "c0", partitions),
        RawReader(run, "c1", partitions, sees_one_node=False),
    ]


@pytest.fixture
def network() -> Iterator[Network | None]:
    if not can_make_networks():
        yield None
        return
    with Network(NODES).made() as made:
        yield made


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in CHOSEN])
def test_nothing_acknowledged_is_lost_by_a_cluster(
    kind: str, seed: int, say: Callable[[str], None], tmp_path: Path, network: Network | None
) -> None:
    seconds = float(os.environ.get("LOGRAFT_CHAOS_CLUSTER_SECONDS", "60"))
    topics = topics_of(kind)
    partitions = [tp for topic in topics for tp in topic.of_partitions()]
    cluster = Cluster.of(
        "kafka" if kind == "kafka" else "lograft",
        tmp_path,
        nodes=NODES,
        places=network.places() if network is not None else None,
    )
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        cluster.start()
        with RawClient(cluster.servers[0].port, host=cluster.servers[0].host) as admin:
            for topic in topics:
                admin.create_topic(
                    topic.name,
                    partitions=topic.partitions,
                    configs=topic.configs,
                    replication_factor=NODES,
                )
        run = ClusterRun(
            cluster.servers[0].port,
            seed,
            addresses=[(one.host, one.port) for one in cluster.servers],
        )
        nemesis = ClusterNemesis(run, cluster, partitions, network)
        stack.callback(nemesis.close)
        nemesis.heal()
        threads = clients(run, topics)
        for thread in threads:
            thread.start()
        try:
            nemesis.carry_out(plan(seed, seconds, has_network=network is not None))
        finally:
            run.stop.set()
            for thread in threads:
                thread.join(3 * DRAIN_SECONDS_MAX)
        assert not any(thread.is_alive() for thread in threads)
        nemesis.heal()
        read_everything(run, topics)
        read_everything_again(run, topics)
        say(f"{kind}: faults: {dict(nemesis.done)}")
        say(f"{kind}: {unavailability(run.history)}")
        judge(run, topics, folder=tmp_path, say=say)
    if kind != "kafka":
        for one in cluster.servers:
            assert b"Traceback" not in one.log_path.read_bytes()


def unavailability(history: History) -> str:
    """From each fault to the next acknowledgement of its partition, if it was the leader's."""
    gaps = []
    waiting: dict[str, float] = {}
    asked: dict[str, str] = {}
    for event in history.events:
        if event.f == "fault" and event.v["target"] == "leader":
            waiting.setdefault(event.v["tp"], event.t)
        elif event.f == "send" and event.type == "invoke":
            asked[event.proc] = event.v["tp"]
        elif event.f == "send" and event.type == "ok":
            tp = asked.pop(event.proc)
            if tp in waiting:
                gaps.append((event.t - waiting.pop(tp)) / 1e9)
    if not gaps:
        return "no leader was hit"
    gaps.sort()
    p50, p99 = gaps[len(gaps) // 2], gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))]
    return f"{len(gaps)} leaders hit, to the next acknowledgement p50 {p50:.2f} s p99 {p99:.2f} s"
