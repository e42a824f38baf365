"""A whole cluster under clients, administrators and faults, from one seed.

Safety phase: clients work, the plan's faults strike, dead nodes are started again, and the watches
look at every replica whenever time passes. Then everything heals. Liveness phase: every partition
must take an acks=all record within bounded time. Last, everything is read, by clients and from
the replicas' own logs, and the checkers judge the history.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from campaigns.cluster_admin import ClusterAdmin
from campaigns.cluster_checks import check_cluster
from campaigns.cluster_faults import FaultInjector
from campaigns.cluster_plan import ClusterOptions, draw_options
from campaigns.cluster_producer import PipelinedProducer
from campaigns.log_matching import unlike_logs, unlike_replays
from campaigns.partition_watch import PartitionWatch
from campaigns.quorum_watch import QuorumWatch
from lograft.simulation.checkers import Violation
from lograft.simulation.client import ErrorResponse, NotSent, OutcomeUnknown
from lograft.simulation.cluster import COMBINED, SimulatedCluster
from lograft.simulation.errors import SimulationFailed
from lograft.simulation.fence import fence
from lograft.simulation.history import History
from lograft.simulation.hosts import Host
from lograft.simulation.machine import Life
from lograft.simulation.node_workload import (
    FETCH_VERSIONS,
    Admin,
    Consumer,
    Reader,
    TopicPlan,
    read_partition,
)
from lograft.simulation.routing import ClusterClient

#: Virtual time within which a cluster must serve, after its start and after it was healed.
LIVENESS_SECONDS: Final = 30
RETRY_SECONDS: Final = 0.25
#: Of one kind: the first one tells what the rest only repeat.
VIOLATIONS_MAX: Final = 20


@dataclass(slots=True)
class ClusterReport:
    seed: int
    options: ClusterOptions
    trace_hash: str = ""
    simulated_seconds: float = 0.0
    starts: int = 0
    kills: int = 0
    power_losses: int = 0
    faults: int = 0
    acknowledged: int = 0
    controller_epochs: int = 0
    leader_epochs: int = 0
    admin_steps: int = 0
    #: Virtual milliseconds from the heal until every partition took a record.
    healed_ms: int = 0
    violations: list[Violation] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)
    history: str = ""


class ClusterRun(SimulatedCluster):
    def __init__(self, seed: int, options: ClusterOptions | None = None) -> None:
        self.options = options or draw_options(seed)
        roles: tuple[str, ...] = (COMBINED,) * self.options.nodes
        if self.options.split_roles and self.options.nodes > 1:
            roles = ("controller",) * 3 + ("broker",) * max(3, self.options.nodes - 2)
        super().__init__(
            len(roles),
            seed=f"{seed}:cluster",
            roles=roles,
            is_static=self.options.is_static,
            properties=self.options.properties,
            policy=self.options.policy,
            restarts=True,
        )
        self.report = ClusterReport(seed, self.options)
        self.history = History(lambda: self.loop.now_ns)
        voters = sum("controller" in role for role in roles)
        self.quorum_watch = QuorumWatch(self, self.violated, voters=voters)
        self.partition_watch = PartitionWatch(self, self.quorum_watch, self.violated)
        self.random = self.loop.streams.stream("workload")
        self.topics = self.plan_topics(sum("broker" in role for role in roles))

    def plan_topics(self, brokers: int) -> list[TopicPlan]:
        replicas = min(3, brokers)
        minimum = {"min.insync.replicas": str(min(2, replicas))}
        if self.options.durable:
            minimum["flush.messages"] = "1"
        random = self.random
        sync_mode, lazy_mode = ({"replication.mode": each} for each in self.options.modes)
        small = {"index.interval.bytes": "0", "segment.index.bytes": "60"}
        quick = {"segment.ms": str(random.choice((300, 60_000)))}
        sync = {"flush.messages": "1", **minimum, **sync_mode, **random.choice(({}, small))}
        topics = [
            TopicPlan("sync", 1, sync, replicas),
            TopicPlan("lazy", 2, {**quick, **minimum, **lazy_mode, **small}, replicas),
        ]
        if self.options.compacted:
            compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            topics.append(
                TopicPlan(
                    "keyed", 1, {**compact, **minimum, **small, "segment.ms": "300"}, replicas
                )
            )
        return topics

    # -- the run -----------------------------------------------------------------------------------

    def execute(self) -> ClusterReport:
        report = self.report
        try:
            with fence():
                self.loop.run_until_complete(self._main())
        except SimulationFailed as error:
            self.violated("L1", str(error))
        finally:
            self.loop.on_quiet = None
            self.loop.close()
        for context in self.loop.unhandled:
            self.violated("L4", f"{context.get('message')}: {context.get('exception')!r}")
        self.violations += self.check()
        report.violations = self.violations
        report.history = self.history.to_jsonl()
        self.loop.trace.event("history", sha256(report.history.encode()).hexdigest())
        report.trace_hash = self.loop.trace.digest()
        report.last_events = list(self.loop.trace.last)
        report.simulated_seconds = self.loop.now_ns / 1e9
        report.starts = sum(host.starts for host in self.hosts.values())
        report.acknowledged = sum(
            event.type == "ok" and event.f == "send" for event in self.history.events
        )
        report.controller_epochs = len(self.quorum_watch.leaders)
        report.leader_epochs = self.partition_watch.leaderships
        return report

    def check(self) -> list[Violation]:
        """What the history says."""
        return check_cluster(self.history)

    def violated(self, invariant: str, message: str) -> None:
        if sum(each.invariant == invariant for each in self.violations) < VIOLATIONS_MAX:
            self.loop.trace.event("violated", invariant, message)
            super().violated(invariant, message)

    def probe(self, host: Host, f: str, **v: Any) -> None:
        node_id = int(host.name[1:])
        match f:
            case "boot":
                self.partition_watch.begins(node_id)
                return
            case "crash" | "exit":
                kind = v.get("kind", "exit")
                with self._watched():
                    self.partition_watch.ends(node_id, kind)
                self.report.kills += kind == "kill"
                self.report.power_losses += kind == "power"
            case "recovered":
                # A follower may have cut it to its leader's by now.
                if not v["cuts"]:
                    self.partition_watch.recovered(node_id, v["tp"], v["end"])
                return
            case "fault":
                self.report.faults += 1
            case _:
                pass
        self.history.record(host.name, "probe", f if f != "crash" else "died", **v)

    def _look(self) -> None:
        """At the nodes that did something since the last look; the others are as they were."""
        touched = self.loop.touched
        nodes = [
            node_id
            for node_id, host in self.hosts.items()
            if host.life is not None and host.life.process in touched
        ]
        touched.clear()
        if nodes:
            with self._watched():
                self.look(nodes)

    def look(self, nodes: list[int]) -> None:
        self.quorum_watch.look(nodes)
        self.partition_watch.look(nodes)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """What is read inside is read for the watches: no node notices."""
        disks = [host.life.disk for host in self.hosts.values() if host.life is not None]
        for disk in disks:
            disk.is_watched = True
        try:
            yield
        finally:
            for disk in disks:
                disk.is_watched = False

    async def _main(self) -> None:
        self.loop.on_quiet = self._look
        for node_id in self.hosts:
            self.boot(node_id)
        client = self.client("client")
        life = self.client_hosts["client"].life
        assert life is not None
        admin = ClusterAdmin(
            client,
            self.administered(),
            history=self.history,
            random=self.random,
            voters=[each for each, role in self.roles.items() if "controller" in role],
        )
        await self._wait_until_served(admin)
        self.start_clients(life, admin)
        injector = FaultInjector(
            self,
            self.options.faults,
            atlas=self.partition_watch,
            random=self.loop.streams.stream("faults"),
        )
        await injector.run(self.options.seconds)
        # Safety phase over: the clients go, everything heals, the cluster must serve.
        self.client_hosts["client"].kill()
        self.heal()
        for host in self.hosts.values():
            host.want(True)
        self.report.admin_steps = sum(admin.done.values())
        # One client for all: it goes back to no leader older than the one that took its record.
        client = self.client("final")
        await self._prove_life(client, admin.extras)
        await self.settle(client)
        await self._read_everything(client)
        self.loop.on_quiet = None

    def administered(self) -> list[TopicPlan]:
        """What the administrator's steps may concern."""
        return self.topics

    async def settle(self, client: ClusterClient) -> None:
        """Other clients may have something to bring to an end before the last look."""

    async def _wait_until_served(self, admin: ClusterAdmin) -> None:
        deadline_ns = self.loop.now_ns + LIVENESS_SECONDS * 10**9
        for topic in self.topics:
            while True:
                try:
                    await admin.create(topic)
                    break
                except (NotSent, OutcomeUnknown, ErrorResponse) as error:
                    if self.loop.now_ns > deadline_ns:
                        raise SimulationFailed(f"a new cluster does not serve: {error}") from None
                    admin.look_again()
                    await asyncio.sleep(RETRY_SECONDS)

    def start_clients(self, life: Life, admin: ClusterAdmin) -> None:
        random = self.random

        def start(work: Coroutine[Any, Any, None], name: str) -> None:
            life.run(work, name=name)

        number = 0
        for topic in self.topics:
            for partition in range(topic.partitions):
                for idempotent in (True, False):
                    number += 1
                    producer = PipelinedProducer(
                        f"p{number}",
                        self.client("client").partition(topic.name, partition),
                        topic,
                        partition,
                        history=self.history,
                        random=random,
                        start=start,
                        acks=-1 if idempotent else random.choice((-1, -1, 1, 0)),
                        idempotent=idempotent,
                        pace_ms=self.options.pace_ms,
                    )
                    start(producer.run(), f"p{number}")
                consumer = Consumer(
                    f"c{number}",
                    self.client("client").partition(topic.name, partition),
                    topic,
                    partition,
                    history=self.history,
                    random=random,
                    isolation_level=number % 2,
                )
                consumer.pauses = (0.01, 0.1, 0.3)
                start(consumer.run(), f"c{number}")
                lister = self._partition_admin(topic, partition).list_latest(
                    topic, partition, pauses_ms=self.options.list_ms
                )
                start(lister, f"lister-{topic.name}-{partition}")
        lazy = self.topics[1]
        start(admin.follow(self.options.steps), "admin")
        if random.random() < 0.5:
            start(self._partition_admin(lazy, 1).delete_records(lazy, 1, 10), "deleter")

    def _partition_admin(self, topic: TopicPlan, partition: int) -> Admin:
        route = self.client("client").partition(topic.name, partition)
        return Admin(route, history=self.history, random=self.random)

    # -- the end -----------------------------------------------------------------------------------

    def deadline_ns(self) -> int:
        return self.loop.now_ns + LIVENESS_SECONDS * 10**9

    async def _prove_life(self, client: ClusterClient, extras: dict[str, bool | None]) -> None:
        """L1: leaders everywhere, acks=all everywhere, within bounded time."""
        healed_ns = self.loop.now_ns
        deadline_ns = self.deadline_ns()
        for topic in self.topics:
            for partition in range(topic.partitions):
                await self.until(deadline_ns, self._touch, client, topic, partition)
        self.report.healed_ms = (self.loop.now_ns - healed_ns) // 1_000_000
        await self.until(deadline_ns, self._compare_topics, client, extras, invariant="M4")

    async def _read_everything(self, client: ClusterClient) -> None:
        deadline_ns = self.deadline_ns()
        for topic in self.topics:
            for partition in range(topic.partitions):
                await self.until(deadline_ns, self._read, client, topic, partition)
        self.partition_watch.look_at_folders()
        with self._watched():
            for message in unlike_logs(self):
                self.violated("D7", message)
            for message in unlike_replays(self):
                self.violated("D9", message)

    async def until(
        self, deadline_ns: int, work: Any, *arguments: Any, invariant: str = "L1"
    ) -> None:
        """Tries again until it works, or the time is over."""
        while True:
            try:
                await work(*arguments)
                return
            except (NotSent, OutcomeUnknown, ErrorResponse) as error:
                if self.loop.now_ns > deadline_ns:
                    self.violated(invariant, f"healed for {LIVENESS_SECONDS} s, but: {error}")
                    return
                await asyncio.sleep(RETRY_SECONDS)

    async def _touch(self, client: ClusterClient, topic: TopicPlan, partition: int) -> None:
        """One acks=all record."""
        attempt = len(self.history.events)
        producer = PipelinedProducer(
            f"touch{attempt}",
            client.partition(topic.name, partition),
            topic,
            partition,
            history=self.history,
            random=self.random,
            start=lambda work, name: work.close(),
            acks=-1,
            idempotent=False,
            pace_ms=(1,),
        )
        code = await producer.send_once()
        if code:
            raise ErrorResponse(code)

    async def _compare_topics(self, client: ClusterClient, extras: dict[str, bool | None]) -> None:
        client.look_again()
        names = await Admin(client, history=self.history, random=self.random).topic_names()
        # A node that was cut off may answer before it has caught up: asked again.
        for name, is_there in extras.items():
            if is_there is not None and is_there != (name in names):
                raise NotSent(f"topic {name}: acknowledged {is_there}, found otherwise")
        for topic in self.topics:
            if names.get(topic.name) != topic.topic_id:
                raise NotSent(f"topic {topic.name} is {names.get(topic.name)}")

    async def _read(self, client: ClusterClient, topic: TopicPlan, partition: int) -> None:
        route = client.partition(topic.name, partition)
        reader = Reader(route, topic, partition, max(FETCH_VERSIONS))
        await read_partition(reader, history=self.history, violated=self.violated)


def run_cluster(seed: int, options: ClusterOptions | None = None) -> ClusterReport:
    return ClusterRun(seed, options).execute()
