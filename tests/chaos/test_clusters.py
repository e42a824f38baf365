"""Kills, pauses and isolates nodes of a three-node cluster while clients produce and consume: no
acknowledged record is lost, duplicated or out of order, and groups and transactions keep their
guarantees. The same runs on Apache Kafka for comparison.

LOGRAFT_CHAOS_CLUSTER_SECONDS sets the duration of the faults for each kind of cluster, and
LOGRAFT_CHAOS_CLUSTERS the kinds: a comma-separated list of isr, raft, kafka. `make chaos-figures`
takes 20 minutes for each kind and stores the results (cluster_figures.py)."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer

from tests.chaos import cluster_figures
from tests.chaos.cluster_client import ClusterRun
from tests.chaos.cluster_nemesis import GROUP, TRANSACTION, ClusterNemesis, plan
from tests.chaos.copiers import GROUP as COPIERS
from tests.chaos.copiers import Copier
from tests.chaos.group_checks import check_copies, check_groups
from tests.chaos.members import (
    CLASSIC,
    CONSUMER,
    GroupMember,
    OffsetWatcher,
    consumer_settings,
    fetch_committed,
)
from tests.chaos.networks import Network, can_create_networks
from tests.chaos.producers import DRAIN_SECONDS_MAX, LibrdkafkaProducer, RetryingProducer
from tests.chaos.raw_client import RawClient
from tests.chaos.readers import LibrdkafkaReader, RawReader
from tests.chaos.topics import Topic
from tests.chaos.verdict import (
    check_run,
    find_violations,
    read_copies,
    read_topics,
    read_topics_with_librdkafka,
)
from tests.compatibility.clusters import NODES, Cluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

KINDS: Final = ("isr", "raft", "kafka")
CHOSEN: Final = os.environ.get("LOGRAFT_CHAOS_CLUSTERS", "isr,raft").split(",")
PARTITIONS: Final = 3
#: Groups that read, process and commit, with the settings of their members.
GROUPS: Final = {"classic": CLASSIC, "modern": CONSUMER}
MEMBERS: Final = 2
COPIER_COUNT: Final = 2
#: Limits the load to a few hundred records per second, because the checkers need time, too.
REST_SECONDS: Final = 0.12
CAUGHT_UP_SECONDS_MAX: Final = 120.0


@dataclass(frozen=True)
class Workload:
    """Topics and clients: two topics for producers, and one that groups read and copy."""

    kind: str
    plain: Topic = field(init=False)
    single: Topic = field(init=False)
    source: Topic = field(init=False)
    copied: Topic = field(init=False)

    def __post_init__(self) -> None:
        mode = {"replication.mode": "raft"} if self.kind == "raft" else {}
        for name in ("plain", "single", "source", "copied"):
            topic = Topic(name, PARTITIONS, {"min.insync.replicas": "2", **mode})
            object.__setattr__(self, name, topic)

    @property
    def written(self) -> list[Topic]:
        return [self.plain, self.single, self.source]

    @property
    def settings(self) -> dict[str, str]:
        return {"internal.topics.replication.mode": "raft"} if self.kind == "raft" else {}

    def writers_and_readers(self, run: ClusterRun) -> list[threading.Thread]:
        """Returns clients that stop with the run."""
        lz4 = {"compression.type": "lz4"}
        partitions = [tp for topic in self.written for tp in topic.of_partitions()]
        return [
            LibrdkafkaProducer(run, 0, [self.plain], rest_seconds=REST_SECONDS),
            LibrdkafkaProducer(run, 1, [self.plain], rest_seconds=REST_SECONDS, settings=lz4),
            LibrdkafkaProducer(
                run, 2, [self.plain], idempotent=False, pause_seconds=0.1, rest_seconds=REST_SECONDS
            ),
            *(
                # A replica that truncated its log starts with a snapshot, which has only the last
                # batch.
                RetryingProducer(
                    run,
                    3 + tp.partition,
                    self.single,
                    tp,
                    timeout_seconds=120,
                    remembered=1,
                    rest_seconds_max=REST_SECONDS,
                )
                for tp in self.single.of_partitions()
            ),
            LibrdkafkaProducer(run, 6, [self.source], rest_seconds=REST_SECONDS),
            LibrdkafkaReader(run, "c0", [*partitions, *self.copied.of_partitions()]),
            RawReader(run, "c1", partitions, sees_one_node=False),
        ]

    def group_members(self, run: ClusterRun, until: threading.Event) -> list[threading.Thread]:
        """Returns clients that continue until all records are read."""
        return [
            *(
                GroupMember(
                    run, f"{group[0]}m{i}", group, self.source, until=until, settings=settings
                )
                for group, settings in GROUPS.items()
                for i in range(MEMBERS)
            ),
            *(
                Copier(run, i, self.source, self.copied, until=until, settings=CLASSIC)
                for i in range(COPIER_COUNT)
            ),
            OffsetWatcher(run, dict.fromkeys((*GROUPS, COPIERS), self.source), until=until),
        ]


@pytest.fixture
def network() -> Iterator[Network | None]:
    if not can_create_networks():
        yield None
        return
    with Network(NODES).created() as created:
        yield created


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in CHOSEN])
def test_cluster_loses_no_acknowledged_record(
    kind: str, seed: int, say: Callable[[str], None], tmp_path: Path, network: Network | None
) -> None:
    seconds = float(os.environ.get("LOGRAFT_CHAOS_CLUSTER_SECONDS", "60"))
    work = Workload(kind)
    cluster = Cluster.of(
        "kafka" if kind == "kafka" else "lograft",
        tmp_path,
        nodes=NODES,
        settings=work.settings,
        places=network.places() if network is not None else None,
    )
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        cluster.start()
        create(cluster, [*work.written, work.copied])
        run = ClusterRun(
            cluster.servers[0].port,
            seed,
            addresses=[(server.host, server.port) for server in cluster.servers],
        )
        nemesis = ClusterNemesis(
            run,
            cluster,
            [tp for topic in work.written for tp in topic.of_partitions()],
            network,
            coordinated=[
                *((GROUP, group) for group in (*GROUPS, COPIERS)),
                *((TRANSACTION, f"copier-x{i}") for i in range(COPIER_COUNT)),
            ],
        )
        stack.callback(nemesis.close)
        nemesis.heal()
        run_with_faults(run, nemesis, work, seconds, has_network=network is not None)
        nemesis.heal()
        read_topics(run, work.written)
        read_topics_with_librdkafka(run, work.written)
        read_copies(run, work.copied)
        found = [
            *find_violations(run, work.written),
            *check_groups(run.history, list(GROUPS)),
            *check_copies(run.history, work.source),
        ]
        figures = cluster_figures.figures_of(
            kind,
            run.history,
            seed=seed,
            seconds=seconds,
            load=nemesis.load,
            faults=nemesis.done,
            violations=found,
            troubles=run.troubles,
        )
        if results := os.environ.get("LOGRAFT_CHAOS_RESULTS"):
            cluster_figures.store(figures, Path(results))
        say(f"{kind}: {figures}")
        check_run(run, work.written, folder=tmp_path, say=say, found=found)
    if kind != "kafka":
        for server in cluster.servers:
            assert b"Traceback" not in server.log_path.read_bytes()


def create(cluster: Cluster, topics: list[Topic]) -> None:
    with RawClient(cluster.servers[0].port, host=cluster.servers[0].host) as admin:
        for topic in topics:
            admin.create_topic(
                topic.name,
                partitions=topic.partitions,
                configs=topic.configs,
                replication_factor=NODES,
            )


def run_with_faults(
    run: ClusterRun, nemesis: ClusterNemesis, work: Workload, seconds: float, *, has_network: bool
) -> None:
    done = threading.Event()
    clients, members = work.writers_and_readers(run), work.group_members(run, done)
    for thread in (*clients, *members):
        thread.start()
    try:
        nemesis.carry_out(plan(run.seed, seconds, has_network=has_network))
        run.stop.set()
        join(run, clients)
        for group in (*GROUPS, COPIERS):
            wait_until_caught_up(run, group, work.source)
    finally:
        run.stop.set()
        done.set()
        join(run, [*clients, *members])


def join(run: ClusterRun, threads: list[threading.Thread]) -> None:
    deadline = time.monotonic() + 3 * DRAIN_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    frames = sys._current_frames()
    for thread in threads:
        if thread.is_alive():
            stack = "".join(traceback.format_stack(frames[thread.ident or 0]))
            run.trouble(thread.name, f"is stuck:\n{stack}")


def wait_until_caught_up(run: ClusterRun, group: str, topic: Topic) -> None:
    """L2: a group reads all records after the last fault. (Up to the last record: control records
    after it are not for consumers.)"""
    ends = dict.fromkeys(map(str, topic.of_partitions()), 0)
    for send in run.history.operations("send"):
        if send.type == "ok" and send.arguments["tp"] in ends:
            ends[send.arguments["tp"]] = max(ends[send.arguments["tp"]], send.result["offset"] + 1)
    deadline = time.monotonic() + CAUGHT_UP_SECONDS_MAX
    with closing(Consumer(consumer_settings(run, group))) as consumer:
        while time.monotonic() < deadline:
            found = fetch_committed(run, consumer, "caught-up", group, topic)
            if found is not None and all(at >= ends[str(tp)] for tp, at in found.items()):
                return
            time.sleep(0.2)
    run.trouble(group, f"did not catch up with {ends}")
