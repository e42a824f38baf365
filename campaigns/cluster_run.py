"""Runs a cluster with clients, administrators and faults, from a seed.

Safety phase: clients work, the plan's faults are injected, dead nodes are restarted, and the
watches inspect every replica before time advances. Then all faults are cleared. Liveness phase:
every partition must accept an acks=all record within bounded time. Finally, all partitions are read
by clients and from the replicas' logs, and the checkers verify the history."""

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
from campaigns.log_matching import find_log_differences, find_replay_differences
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

#: Virtual time within which a cluster must serve after its start and after the faults are cleared.
LIVENESS_SECONDS: Final = 30
RETRY_SECONDS: Final = 0.25
#: Recorded violations per invariant; further ones repeat the first.
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
        self.quorum_watch = QuorumWatch(self, self.report_violation, voters=voters)
        self.partition_watch = PartitionWatch(self, self.quorum_watch, self.report_violation)
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
            self.report_violation("L1", str(error))
        finally:
            self.loop.on_instant_end = None
            self.loop.close()
        for context in self.loop.unhandled:
            self.report_violation("L4", f"{context.get('message')}: {context.get('exception')!r}")
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
        """Checks the history."""
        return check_cluster(self.history)

    def report_violation(self, invariant: str, message: str) -> None:
        if sum(each.invariant == invariant for each in self.violations) < VIOLATIONS_MAX:
            self.loop.trace.event("violated", invariant, message)
            super().report_violation(invariant, message)

    def probe(self, host: Host, f: str, **v: Any) -> None:
        node_id = int(host.name[1:])
        match f:
            case "boot":
                self.partition_watch.on_boot(node_id)
                return
            case "crash" | "exit":
                kind = v.get("kind", "exit")
                with self._inspection():
                    self.partition_watch.on_process_end(node_id, kind)
                self.report.kills += kind == "kill"
                self.report.power_losses += kind == "power"
            case "recovered":
                # A follower may have truncated its log to its leader's by now.
                if not v["cuts"]:
                    self.partition_watch.on_recovered(node_id, v["tp"], v["end"])
                return
            case "fault":
                self.report.faults += 1
            case _:
                pass
        self.history.record(host.name, "probe", f if f != "crash" else "died", **v)

    def _inspect_changed(self) -> None:
        """Inspects the nodes that ran since the last inspection; the others are unchanged."""
        active = self.loop.touched
        nodes = [
            node_id
            for node_id, host in self.hosts.items()
            if host.life is not None and host.life.process in active
        ]
        active.clear()
        if nodes:
            with self._inspection():
                self.inspect(nodes)

    def inspect(self, nodes: list[int]) -> None:
        self.quorum_watch.inspect(nodes)
        self.partition_watch.inspect(nodes)

    @contextmanager
    def _inspection(self) -> Iterator[None]:
        """Disk reads inside take no simulated time and have no faults."""
        disks = [host.life.disk for host in self.hosts.values() if host.life is not None]
        for disk in disks:
            disk.is_inspected = True
        try:
            yield
        finally:
            for disk in disks:
                disk.is_inspected = False

    async def _main(self) -> None:
        self.loop.on_instant_end = self._inspect_changed
        for node_id in self.hosts:
            self.boot(node_id)
        client = self.client("client")
        life = self.client_hosts["client"].life
        assert life is not None
        admin = ClusterAdmin(
            client,
            self.administered_topics(),
            history=self.history,
            random=self.random,
            voters=[each for each, role in self.roles.items() if "controller" in role],
        )
        await self._wait_for_topics(admin)
        self.start_clients(life, admin)
        injector = FaultInjector(
            self,
            self.options.faults,
            atlas=self.partition_watch,
            random=self.loop.streams.stream("faults"),
        )
        await injector.run(self.options.seconds)
        # End of the safety phase: clients stop, faults are cleared, and the cluster must serve.
        self.client_hosts["client"].kill()
        self.heal()
        for host in self.hosts.values():
            host.set_should_run(True)
        self.report.admin_steps = sum(admin.done.values())
        # A single client, which never goes back to an older leader than the one that took its
        # record.
        client = self.client("final")
        await self._check_liveness(client, admin.extras)
        await self.settle(client)
        await self._read_all_partitions(client)
        self.loop.on_instant_end = None

    def administered_topics(self) -> list[TopicPlan]:
        """Returns the topics that the administrator's steps may change."""
        return self.topics

    async def settle(self, client: ClusterClient) -> None:
        """Waits until pending work of clients is complete; overridden by other kinds of runs."""

    async def _wait_for_topics(self, admin: ClusterAdmin) -> None:
        deadline_ns = self.loop.now_ns + LIVENESS_SECONDS * 10**9
        for topic in self.topics:
            while True:
                try:
                    await admin.create(topic)
                    break
                except (NotSent, OutcomeUnknown, ErrorResponse) as error:
                    if self.loop.now_ns > deadline_ns:
                        raise SimulationFailed(
                            f"a new cluster does not serve requests: {error}"
                        ) from None
                    admin.mark_stale()
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

    async def _check_liveness(self, client: ClusterClient, extras: dict[str, bool | None]) -> None:
        """L1: every partition has a leader and accepts acks=all within bounded time."""
        deadline_ns = self.deadline_ns()
        for topic in self.topics:
            for partition in range(topic.partitions):
                await self.retry_until(deadline_ns, self._send_record, client, topic, partition)
        await self.retry_until(deadline_ns, self._compare_topics, client, extras, invariant="M4")

    async def _read_all_partitions(self, client: ClusterClient) -> None:
        deadline_ns = self.deadline_ns()
        for topic in self.topics:
            for partition in range(topic.partitions):
                await self.retry_until(deadline_ns, self._read_final, client, topic, partition)
        self.partition_watch.check_folders()
        with self._inspection():
            for message in find_log_differences(self):
                self.report_violation("D7", message)
            for message in find_replay_differences(self):
                self.report_violation("D9", message)

    async def retry_until(
        self, deadline_ns: int, work: Any, *arguments: Any, invariant: str = "L1"
    ) -> None:
        """Retries until it succeeds; reports a violation after the deadline."""
        while True:
            try:
                await work(*arguments)
                return
            except (NotSent, OutcomeUnknown, ErrorResponse) as error:
                if self.loop.now_ns > deadline_ns:
                    self.report_violation(
                        invariant,
                        f"{LIVENESS_SECONDS} s after all faults were cleared: {error}",
                    )
                    return
                await asyncio.sleep(RETRY_SECONDS)

    async def _send_record(self, client: ClusterClient, topic: TopicPlan, partition: int) -> None:
        """Sends one record with acks=all."""
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
        client.mark_stale()
        names = await Admin(client, history=self.history, random=self.random).topic_names()
        # A node that was isolated may respond before it has caught up, so this is retried.
        for name, exists in extras.items():
            if exists is not None and exists != (name in names):
                raise NotSent(
                    f"topic {name}: exists={exists} was acknowledged, but the opposite was found"
                )
        for topic in self.topics:
            if names.get(topic.name) != topic.topic_id:
                raise NotSent(f"topic {topic.name} is {names.get(topic.name)}")

    async def _read_final(self, client: ClusterClient, topic: TopicPlan, partition: int) -> None:
        route = client.partition(topic.name, partition)
        reader = Reader(route, topic, partition, max(FETCH_VERSIONS))
        await read_partition(reader, history=self.history, report_violation=self.report_violation)


def run_cluster(seed: int, options: ClusterOptions | None = None) -> ClusterReport:
    return ClusterRun(seed, options).execute()
