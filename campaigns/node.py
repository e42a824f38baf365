"""Runs a node with simulated clients and faults: produce, fetch, create, delete, crash, check.

A seed determines options and an explicit fault plan. Safety phase: clients work while the plan
runs, and the node is restarted whenever it dies. Then all faults are cleared, and in the liveness
phase the node must serve again: every partition is read to its end, and the checkers verify the
history."""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Final

from lograft.broker.quorum.formatting import FormatRequest, Standalone
from lograft.model.seams import Address
from lograft.model.settings.broker import broker_config
from lograft.simulation.checkers import Violation, check
from lograft.simulation.client import NotSent, OutcomeUnknown, SimulatedClient
from lograft.simulation.disk import DiskFault
from lograft.simulation.errors import SimulationFailed
from lograft.simulation.fence import fence
from lograft.simulation.history import History
from lograft.simulation.hosts import Host
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.simulation.node_workload import (
    Admin,
    Consumer,
    Producer,
    Reader,
    TopicPlan,
    read_partition,
)
from lograft.simulation.policies import policy_of
from lograft.simulation.trace import Streams

HOST: Final = "server"
PORT: Final = 9092
DATA: Final = "/data"
#: Settings with short intervals, so that background work happens often.
PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://{HOST}:{PORT},CONTROLLER://{HOST}:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": f"{HOST}:9093",
    "log.dirs": DATA,
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
SAMPLE_SECONDS: Final = 0.03
#: Virtual time within which the node must serve after the faults are cleared.
LIVENESS_SECONDS: Final = 30
#: A scheduled crash happens within this many modifying disk operations.
OPERATIONS_MAX: Final = 200
KINDS_OF_FAULTS: Final = (
    "kill", "power", "power", "crash-kill", "crash-power", "crash-power", "stop", "stop", "eio",
    "reset", "cut-in", "cut-out", "clock",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    at_ms: int
    kind: str
    #: Depends on the kind: a duration, a number of operations, a clock jump.
    amount: int


@dataclass(slots=True)
class NodeOptions:
    seconds: int
    policy: str
    faults: list[Fault]


@dataclass(slots=True)
class NodeReport:
    seed: int
    options: NodeOptions
    trace_hash: str = ""
    starts: int = 0
    kills: int = 0
    power_losses: int = 0
    acknowledged: int = 0
    violations: list[Violation] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)
    history: str = ""


def draw_options(seed: int) -> NodeOptions:
    random = Random(f"{seed}:options")
    seconds = random.choice((5, 10, 20))
    faults = [
        Fault(
            at_ms=random.randrange(seconds * 1000),
            kind=random.choice(KINDS_OF_FAULTS),
            amount=random.randint(1, OPERATIONS_MAX),
        )
        for _ in range(random.choice((0, 2, 4, 8)))
    ]
    faults.sort(key=lambda fault: fault.at_ms)
    return NodeOptions(seconds, random.choice(("uniform", "uniform", "pct", "fifo")), faults)


class NodeRun:
    def __init__(self, seed: int, options: NodeOptions | None = None) -> None:
        self.options = options or draw_options(seed)
        self.report = NodeReport(seed, self.options)
        self.streams = Streams(seed)
        policy = policy_of(self.options.policy, self.streams.stream("schedule"))
        self.loop = SimulatedLoop(streams=self.streams, policy=policy)
        self.network = Network(self.loop)
        self.history = History(lambda: self.loop.now_ns)
        self._random = self.streams.stream("workload")
        self._faults = self.streams.stream("faults")
        self.host = Host(
            self.loop,
            self.network,
            HOST,
            broker_config(PROPERTIES),
            FormatRequest(cluster_id="simulated-cluster-id-1", controllers=Standalone()),
            observer=self,
            random=self._faults,
        )
        self._clients = 0
        random = self._random
        small = {"index.interval.bytes": "0", "segment.index.bytes": "60"}
        self.topics = [
            TopicPlan("sync", 2, {"flush.messages": "1", **random.choice(({}, small))}),
            TopicPlan("lazy", 2, {"segment.ms": str(random.choice((300, 60_000))), **small}),
        ]

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> NodeReport:
        report = self.report
        try:
            with fence():
                self.loop.run_until_complete(self._main())
        except SimulationFailed as error:
            self.report_violation("L1", str(error))
        finally:
            self.loop.close()
        for context in self.loop.unhandled:
            self.report_violation("L4", f"{context.get('message')}: {context.get('exception')!r}")
        report.starts = self.host.starts
        report.violations += check(self.history)
        report.history = self.history.to_jsonl()
        self.loop.trace.event("history", sha256(report.history.encode()).hexdigest())
        report.trace_hash = self.loop.trace.digest()
        report.last_events = list(self.loop.trace.last)
        report.acknowledged = sum(
            event.type == "ok" and event.f == "send" for event in self.history.events
        )
        return report

    async def _main(self) -> None:
        self.host.supervise()
        await self.host.serving.wait()
        clients = Machine(self.loop, self.network, "client")
        life = clients.boot()
        admin = Admin(self._client(life), history=self.history, random=self._random)
        await self._create_topics(admin)
        sampler = self.loop.create_task(self._sample(), name="sampler")
        self._start_clients(life, admin)
        await self._inject_all()
        # End of the safety phase: clients stop, links are restored, and the node must come back.
        clients.kill()
        self.network.heal()
        await self._final_reads(admin.extras)
        sampler.cancel()

    def _client(self, life: Life) -> SimulatedClient:
        self._clients += 1
        transport = life.runtime.transport
        return SimulatedClient(transport, Address(HOST, PORT), client_id=f"c{self._clients}")

    async def _create_topics(self, admin: Admin) -> None:
        for topic in self.topics:
            await admin.create(topic)

    def _start_clients(self, life: Life, admin: Admin) -> None:
        def start(work: Coroutine[Any, Any, None], name: str) -> None:
            life.run(work, name=name)

        number = 0
        for topic in self.topics:
            for partition in range(topic.partitions):
                for idempotent in (True, False):
                    number += 1
                    producer = Producer(
                        f"p{number}", self._client(life), topic, partition,
                        history=self.history, random=self._random, idempotent=idempotent,
                    )  # fmt: skip
                    start(producer.run(), f"p{number}")
                consumer = Consumer(
                    f"c{number}", self._client(life), topic, partition,
                    history=self.history, random=self._random,
                )  # fmt: skip
                start(consumer.run(), f"c{number}")
        sync, lazy = self.topics
        start(admin.churn(), "admin")
        for work, name in (
            (self._second_admin(life).list_latest(sync, 0), "lister"),
            (self._second_admin(life).delete_records(lazy, 1, 10), "deleter"),
        ):
            start(work, name)

    def _second_admin(self, life: Life) -> Admin:
        return Admin(self._client(life), history=self.history, random=self._random)

    # -- the node ----------------------------------------------------------------------------------

    def report_violation(self, invariant: str, message: str) -> None:
        self.report.violations.append(Violation(invariant, message))

    def probe(self, host: Host, f: str, **v: Any) -> None:
        if f == "crash":
            self.report.power_losses += v["kind"] == "power"
            self.report.kills += v["kind"] == "kill"
        self._probe(f, **v)

    def _probe(self, f: str, **v: Any) -> None:
        self.history.record("node", "probe", f, **v)

    async def _sample(self) -> None:
        """Records the node's own view of its logs as probes."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            node = self.host.node
            if node is None or not self.host.serving.is_set():
                continue
            for partition in node.broker.partitions:
                log = partition.log
                if log is None or not partition.is_usable or partition.topic.startswith("extra"):
                    continue
                tp = str(partition.topic_partition)
                self._probe("fsync", tp=tp, upto=log.durable_offset)
                self._probe(
                    "hw",
                    tp=tp,
                    log_start=log.log_start_offset,
                    lso=partition.last_stable_offset,
                    hw=partition.high_watermark,
                    end=log.end_offset,
                )

    # -- faults ------------------------------------------------------------------------------------

    async def _inject_all(self) -> None:
        start_ns = self.loop.now_ns
        for fault in self.options.faults:
            wait_ns = start_ns + fault.at_ms * 1_000_000 - self.loop.now_ns
            await asyncio.sleep(max(0, wait_ns) / 1e9)
            await self._inject(fault)
        rest_ns = start_ns + self.options.seconds * 10**9 - self.loop.now_ns
        await asyncio.sleep(max(0, rest_ns) / 1e9)

    async def _inject(self, fault: Fault) -> None:
        host, life = self.host, self.host.life
        self._probe("fault", kind=fault.kind, amount=fault.amount)
        match fault.kind:
            case "kill" | "power" if life is not None:
                host.end(fault.kind)
            case "crash-kill" | "crash-power" if life is not None:
                host.crash_after(fault.amount, fault.kind.removeprefix("crash-"))
            case "stop" if life is not None and host.serving.is_set():
                await host.stop()
            case "eio" if life is not None:
                host.has_disk_failed = True
                operation = self._faults.choice(("write", "fsync", "fsync_dir", "rename"))
                life.disk.faults.append(
                    DiskFault(operation=operation, skip=fault.amount % 20)  # type: ignore[arg-type]
                )
            case "reset":
                self.network.reset_all(HOST)
            case "cut-in" | "cut-out":
                link = ("client", HOST) if fault.kind == "cut-in" else (HOST, "client")
                self.network.cut(*link)
                self.loop.call_later_ns(fault.amount * 20_000_000, self.network.heal)
            case "clock":
                host.machine.clock.jump((fault.amount - OPERATIONS_MAX // 2) * 60_000)
            case _:
                pass

    # -- the end -----------------------------------------------------------------------------------

    async def _final_reads(self, extras: dict[str, bool | None]) -> None:
        self.host.clear_faults()
        reader = Machine(self.loop, self.network, "reader").boot()
        client = self._client(reader)
        deadline_ns = self.loop.now_ns + LIVENESS_SECONDS * 10**9
        while True:
            try:
                await self._read_all_partitions(client, extras)
                return
            except (NotSent, OutcomeUnknown) as error:
                if self.loop.now_ns > deadline_ns:
                    self.report_violation(
                        "L1", f"the node does not serve after all faults were cleared: {error}"
                    )
                    return
                await asyncio.sleep(0.5)

    async def _read_all_partitions(
        self, client: SimulatedClient, extras: dict[str, bool | None]
    ) -> None:
        names = await Admin(client, history=self.history, random=self._random).topic_names()
        for name, exists in extras.items():
            if exists is not None and exists != (name in names):
                self.report_violation(
                    "M4",
                    f"topic {name}: exists={exists} was acknowledged, but the opposite was found",
                )
        for topic in self.topics:
            if names.get(topic.name) != topic.topic_id:
                self.report_violation("M4", f"topic {topic.name} is {names.get(topic.name)}")
                continue
            for partition in range(topic.partitions):
                reader = Reader(client, topic, partition, 11)
                await read_partition(
                    reader, history=self.history, report_violation=self.report_violation
                )


def run_node(seed: int, options: NodeOptions | None = None) -> NodeReport:
    return NodeRun(seed, options).run()


def options_as_json(options: NodeOptions) -> dict[str, Any]:
    return asdict(options)


def node_options(values: dict[str, Any]) -> NodeOptions:
    faults = [Fault(**each) for each in values["faults"]]
    return NodeOptions(values["seconds"], values["policy"], faults)
