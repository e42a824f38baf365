"""Three nodes under kill, pause and partition while clients write and read: nothing acknowledged is
lost, nothing is there twice, everything lies in order, groups and transactions keep their promises.
The same on Apache Kafka for comparison.

LOGRAFT_CHAOS_CLUSTER_SECONDS says how long each kind of cluster is tormented, and
LOGRAFT_CHAOS_CLUSTERS which kinds: a comma list of isr, raft, kafka. `make chaos-figures` takes 20
minutes for each and keeps what it measured (cluster_figures.py).
"""

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
    committed,
    consumer_settings,
)
from tests.chaos.networks import Network, can_make_networks
from tests.chaos.producers import DRAIN_SECONDS_MAX, LibrdkafkaProducer, RetryingProducer
from tests.chaos.raw_client import RawClient
from tests.chaos.readers import LibrdkafkaReader, RawReader
from tests.chaos.topics import Topic
from tests.chaos.verdict import (
    judge,
    read_copies,
    read_everything,
    read_everything_again,
    violations,
)
from tests.compatibility.clusters import NODES, Cluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

KINDS: Final = ("isr", "raft", "kafka")
CHOSEN: Final = os.environ.get("LOGRAFT_CHAOS_CLUSTERS", "isr,raft").split(",")
PARTITIONS: Final = 3
#: Groups that read, process and commit, with what makes a member of them.
GROUPS: Final = {"classic": CLASSIC, "modern": CONSUMER}
MEMBERS: Final = 2
COPIER_COUNT: Final = 2
#: A few hundred records a second: the checkers need time too.
REST_SECONDS: Final = 0.12
CAUGHT_UP_SECONDS_MAX: Final = 120.0


@dataclass(frozen=True)
class Workload:
    """What clients do: two topics for writers, and one whose records groups read and copy."""

    kind: str
    plain: Topic = field(init=False)
    alone: Topic = field(init=False)
    source: Topic = field(init=False)
    copied: Topic = field(init=False)

    def __post_init__(self) -> None:
        mode = {"replication.mode": "raft"} if self.kind == "raft" else {}
        for name in ("plain", "alone", "source", "copied"):
            topic = Topic(name, PARTITIONS, {"min.insync.replicas": "2", **mode})
            object.__setattr__(self, name, topic)

    @property
    def written(self) -> list[Topic]:
        return [self.plain, self.alone, self.source]

    @property
    def settings(self) -> dict[str, str]:
        return {"internal.topics.replication.mode": "raft"} if self.kind == "raft" else {}

    def writers_and_readers(self, run: ClusterRun) -> list[threading.Thread]:
        """They end with the run."""
        lz4 = {"compression.type": "lz4"}
        partitions = [tp for topic in self.written for tp in topic.of_partitions()]
        return [
            LibrdkafkaProducer(run, 0, [self.plain], rest_seconds=REST_SECONDS),
            LibrdkafkaProducer(run, 1, [self.plain], rest_seconds=REST_SECONDS, settings=lz4),
            LibrdkafkaProducer(
                run, 2, [self.plain], idempotent=False, pause_seconds=0.1, rest_seconds=REST_SECONDS
            ),
            *(
                # A replica that cut its log begins with a snapshot: that has the newest batch only.
                RetryingProducer(
                    run,
                    3 + tp.partition,
                    self.alone,
                    tp,
                    patience_seconds=120,
                    remembered=1,
                    rest_seconds_max=REST_SECONDS,
                )
                for tp in self.alone.of_partitions()
            ),
            LibrdkafkaProducer(run, 6, [self.source], rest_seconds=REST_SECONDS),
            LibrdkafkaReader(run, "c0", [*partitions, *self.copied.of_partitions()]),
            RawReader(run, "c1", partitions, sees_one_node=False),
        ]

    def group_members(self, run: ClusterRun, until: threading.Event) -> list[threading.Thread]:
        """They go on until everything is read."""
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
            addresses=[(one.host, one.port) for one in cluster.servers],
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
        torment(run, nemesis, work, seconds, has_network=network is not None)
        nemesis.heal()
        read_everything(run, work.written)
        read_everything_again(run, work.written)
        read_copies(run, work.copied)
        found = [
            *violations(run, work.written),
            *check_groups(run.history, list(GROUPS)),
            *check_copies(run.history, work.source),
        ]
        figures = cluster_figures.measured(
            kind,
            run.history,
            seed=seed,
            seconds=seconds,
            load=nemesis.load,
            faults=nemesis.done,
            found=found,
            troubles=run.troubles,
        )
        if results := os.environ.get("LOGRAFT_CHAOS_RESULTS"):
            cluster_figures.keep(figures, Path(results))
        say(f"{kind}: {figures}")
        judge(run, work.written, folder=tmp_path, say=say, found=found)
    if kind != "kafka":
        for one in cluster.servers:
            assert b"Traceback" not in one.log_path.read_bytes()


def create(cluster: Cluster, topics: list[Topic]) -> None:
    with RawClient(cluster.servers[0].port, host=cluster.servers[0].host) as admin:
        for topic in topics:
            admin.create_topic(
                topic.name,
                partitions=topic.partitions,
                configs=topic.configs,
                replication_factor=NODES,
            )


def torment(
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
            where = "".join(traceback.format_stack(frames[thread.ident or 0]))
            run.trouble(thread.name, f"is stuck:\n{where}")


def wait_until_caught_up(run: ClusterRun, group: str, topic: Topic) -> None:
    """L2: a group reads all there is once nothing is done to the cluster any more. (Up to the last
    record: what raft leaders and transactions write after it is not for consumers.)"""
    ends = dict.fromkeys(map(str, topic.of_partitions()), 0)
    for send in run.history.operations("send"):
        if send.type == "ok" and send.arguments["tp"] in ends:
            ends[send.arguments["tp"]] = max(ends[send.arguments["tp"]], send.result["offset"] + 1)
    deadline = time.monotonic() + CAUGHT_UP_SECONDS_MAX
    with closing(Consumer(consumer_settings(run, group))) as consumer:
        while time.monotonic() < deadline:
            found = committed(run, consumer, "caught-up", group, topic)
            if found is not None and all(at >= ends[str(tp)] for tp, at in found.items()):
                return
            time.sleep(0.2)
    run.trouble(group, f"does not catch up with {ends}")
