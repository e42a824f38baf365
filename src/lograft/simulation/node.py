"""A whole node under simulated clients and faults: produce, fetch, create, delete, crash, check.

A seed gives options and an explicit fault plan. Safety phase: clients work while the plan runs,
and the node is restarted whenever it dies. Then everything heals, and in the liveness phase the
node must serve again: every partition is read to its end, and the checkers judge the history.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Final

from lograft.broker.formatting import FormatRequest, Standalone, format_directories
from lograft.model.broker_configs import broker_config
from lograft.model.errors import DiskFailed
from lograft.model.seams import Address
from lograft.node import Node
from lograft.simulation.checkers import Violation, check
from lograft.simulation.client import NotSent, OutcomeUnknown, SimulatedClient
from lograft.simulation.disk import DiskFault
from lograft.simulation.errors import SimulationFailed
from lograft.simulation.fence import fence
from lograft.simulation.history import History
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.simulation.node_workload import (
    EARLIEST,
    Admin,
    Consumer,
    Producer,
    Reader,
    TopicPlan,
)
from lograft.simulation.policies import policy_of
from lograft.simulation.trace import Streams

HOST: Final = "server"
PORT: Final = 9092
DATA: Final = "/data"
#: Broker settings that make rare work common.
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
#: Virtual time within which a healed node must serve.
LIVENESS_SECONDS: Final = 30
#: The process dies at one of its next so many disk operations.
OPERATIONS_MAX: Final = 200
KINDS_OF_FAULTS: Final = (
    "kill", "power", "power", "crash-kill", "crash-power", "crash-power", "stop", "stop", "eio",
    "reset", "cut-in", "cut-out", "clock",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    at_ms: int
    kind: str
    #: Its meaning goes with the kind: a duration, a number of operations, a jump.
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
        self.server = Machine(self.loop, self.network, HOST)
        # As in the storage torture: a restart after a failed fsync is taken for a reboot.
        self.server.platter.eviction_chance = 1.0
        self.history = History(lambda: self.loop.now_ns)
        self.config = broker_config(PROPERTIES)
        self._random = self.streams.stream("workload")
        self._faults = self.streams.stream("faults")
        self._node: Node | None = None
        self._life_ended = asyncio.Event()
        self._is_serving = asyncio.Event()
        self._was_disk_hurt = False
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
            self._violated("L1", str(error))
        finally:
            self.loop.close()
        for context in self.loop.unhandled:
            self._violated("L4", f"{context.get('message')}: {context.get('exception')!r}")
        report.violations += check(self.history)
        report.history = self.history.to_jsonl()
        self.loop.trace.event("history", sha256(report.history.encode()).hexdigest())
        report.trace_hash = self.loop.trace.digest()
        report.last_events = list(self.loop.trace.last)
        report.acknowledged = sum(
            event.type == "ok" and event.f == "send" for event in self.history.events
        )
        return report

    def _violated(self, invariant: str, message: str) -> None:
        self.report.violations.append(Violation(invariant, message))

    async def _main(self) -> None:
        supervisor = self.loop.create_task(self._supervise(), name="supervisor")
        await self._is_serving.wait()
        clients = Machine(self.loop, self.network, "client")
        life = clients.boot()
        admin = Admin(self._client(life), history=self.history, random=self._random)
        await self._create_topics(admin)
        sampler = self.loop.create_task(self._sample(), name="sampler")
        self._start_clients(life, admin)
        await self._inject_all()
        # Safety phase over: the clients go, the network heals, the node must come back.
        clients.kill()
        self.network.heal()
        await self._final_reads(admin.extras)
        sampler.cancel()
        supervisor.cancel()

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

    async def _supervise(self) -> None:
        """Starts the node whenever it does not run."""
        while True:
            self._life_ended.clear()
            life = self.server.boot()
            self.report.starts += 1
            life.on_failure = lambda error: self._spawned_failed(error)
            start = life.run(self._start_node(life), name="start")
            ended = self.loop.create_task(self._life_ended.wait(), name="ended")
            await asyncio.wait([start, ended], return_when=asyncio.FIRST_COMPLETED)
            if start.done() and start.exception() is not None:
                self._node_failed(start.exception())
                if self.server.life is life:
                    self._kill("kill")
            await ended
            self._is_serving.clear()
            self._node = None
            await asyncio.sleep(self._faults.choice((0.01, 0.5, 2)))

    async def _start_node(self, life: Life) -> None:
        runtime = life.runtime
        if not runtime.disk.exists(f"{DATA}/meta.properties"):
            request = FormatRequest(cluster_id="simulated-cluster-id-1", controllers=Standalone())
            format_directories(
                runtime.disk,
                self.config,
                request,
                randomness=runtime.randomness,
                now_ms=runtime.clock.wall_ms(),
            )
            # Formatting is the administrator's work; the parent folder is theirs, too.
            runtime.disk.fsync_dir("/")
        node = Node(self.config, runtime, halt=self._halted, host_name=HOST)
        await node.start()
        self._node = node
        for partition in node.broker.partitions:
            if partition.log is not None:
                self._probe(
                    "recovered",
                    tp=str(partition.topic_partition),
                    start=partition.log.log_start_offset,
                    end=partition.log.end_offset,
                )
        self._is_serving.set()

    def _halted(self, reason: str) -> None:
        self.loop.trace.event("halt", reason)
        if not self._was_disk_hurt:
            self._violated("L4", f"the node halted: {reason}")
        # From outside of the node's own call.
        self.loop.call_later_ns(1, self._kill_if_alive, context=self.network.kernel)

    def _kill_if_alive(self) -> None:
        if self.server.life is not None:
            self._kill("power" if self._was_disk_hurt else "kill")

    def _spawned_failed(self, error: BaseException) -> None:
        self._node_failed(error)
        self.loop.call_later_ns(1, self._kill_if_alive, context=self.network.kernel)

    def _node_failed(self, error: BaseException | None) -> None:
        if not (self._was_disk_hurt and isinstance(error, DiskFailed | OSError)):
            self._violated("L4", f"the node failed: {error!r}")

    def _kill(self, kind: str) -> None:
        self._probe("crash", kind=kind)
        if kind == "power":
            self.report.power_losses += 1
            self.server.lose_power()
        else:
            self.report.kills += 1
            self.server.kill()
        self._was_disk_hurt = False
        self._life_ended.set()

    def _probe(self, f: str, **v: Any) -> None:
        self.history.record("node", "probe", f, **v)

    async def _sample(self) -> None:
        """What the node itself believes, as probes."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            if self._node is None or self.server.life is None or not self._is_serving.is_set():
                continue
            for partition in self._node.broker.partitions:
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
        life = self.server.life
        self._probe("fault", kind=fault.kind, amount=fault.amount)
        match fault.kind:
            case "kill" | "power" if life is not None:
                self._kill(fault.kind)
            case "crash-kill" | "crash-power" if life is not None:
                kind = fault.kind.removeprefix("crash-")
                life.disk.crash_after(fault.amount, lambda: self._kill(kind))
            case "stop" if life is not None and self._node is not None:
                await self._stop_cleanly(life, self._node)
            case "eio" if life is not None:
                self._was_disk_hurt = True
                operation = self._faults.choice(("write", "fsync", "fsync_dir", "rename"))
                life.disk.faults.append(
                    DiskFault(operation=operation, skip=fault.amount % 20)  # type: ignore[arg-type]
                )
            case "reset":
                self.network.reset_all(HOST)
            case "cut-in" | "cut-out":
                ways = ("client", HOST) if fault.kind == "cut-in" else (HOST, "client")
                self.network.cut(*ways)
                self.loop.call_later_ns(fault.amount * 20_000_000, self.network.heal)
            case "clock":
                self.server.clock.jump((fault.amount - OPERATIONS_MAX // 2) * 60_000)
            case _:
                pass

    async def _stop_cleanly(self, life: Life, node: Node) -> None:
        self._is_serving.clear()
        stop = life.run(node.stop(), name="stop")
        ended = self.loop.create_task(self._life_ended.wait(), name="ended")
        await asyncio.wait([stop, ended], return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            return
        if stop.exception() is not None:
            self._node_failed(stop.exception())
        if self.server.life is life:
            if self._was_disk_hurt:
                self._kill("power")
                return
            self.server.exit()
            self._life_ended.set()
        ended.cancel()

    # -- the end -----------------------------------------------------------------------------------

    async def _final_reads(self, extras: dict[str, bool | None]) -> None:
        # What was set but has not struck yet does not strike any more.
        if self.server.life is not None:
            self.server.life.disk.crash = None
            self.server.life.disk.faults.clear()
        reader = Machine(self.loop, self.network, "reader").boot()
        client = self._client(reader)
        deadline_ns = self.loop.now_ns + LIVENESS_SECONDS * 10**9
        while True:
            try:
                await self._read_everything(client, extras)
                return
            except (NotSent, OutcomeUnknown) as error:
                if self.loop.now_ns > deadline_ns:
                    self._violated("L1", f"a healed node does not serve: {error}")
                    return
                await asyncio.sleep(0.5)

    async def _read_everything(
        self, client: SimulatedClient, extras: dict[str, bool | None]
    ) -> None:
        names = await Admin(client, history=self.history, random=self._random).topic_names()
        for name, is_there in extras.items():
            if is_there is not None and is_there != (name in names):
                self._violated("M4", f"topic {name}: acknowledged {is_there}, found otherwise")
        for topic in self.topics:
            if names.get(topic.name) != topic.topic_id:
                self._violated("M4", f"topic {topic.name} is {names.get(topic.name)}")
                continue
            for partition in range(topic.partitions):
                await self._read_partition(client, topic, partition)

    async def _read_partition(
        self, client: SimulatedClient, topic: TopicPlan, partition: int
    ) -> None:
        reader = Reader(client, topic, partition, 11)
        admin = Admin(client, history=self.history, random=self._random)
        position, bad_crcs = await admin.list_offset(topic, partition, EARLIEST), 0
        everything: list[tuple[int, str]] = []
        while True:
            data, records, bad = await reader.fetch(position, bytes_max=1 << 20, wait_ms=0)
            bad_crcs += bad
            if data.error_code:
                raise NotSent(f"{topic.name}-{partition} answers {data.error_code}")
            everything += records
            if not records:
                break
            position = records[-1][0] + 1
        if position < data.high_watermark:
            self._violated("D5", f"{topic.name}-{partition}: {position} of {data.high_watermark}")
        self.history.record("final", "invoke", "final", tp=f"{topic.name}-{partition}", offset=0)
        self.history.record(
            "final", "ok", "final", records=everything, hw=data.high_watermark,
            log_start=data.log_start_offset, bad_crc=bad_crcs,
        )  # fmt: skip


def run_node(seed: int, options: NodeOptions | None = None) -> NodeReport:
    return NodeRun(seed, options).run()


def options_as_json(options: NodeOptions) -> dict[str, Any]:
    return asdict(options)
