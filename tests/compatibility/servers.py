"""Starts a Lograft or an Apache Kafka node for a test or a benchmark, and stops it.

    with Server.of("kafka", folder).started() as server:
        use(server.bootstrap)

Kafka is 4.3.1, or 3.9 (`kafka39`) for the tests of Lograft's client. All kinds read the same
properties file, so a test specifies its settings once. A server has its own folder and free ports
of 127.0.0.1; `log_tail()` is its latest output, for the report of a failure.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal

import pytest

from tests.compatibility.readiness import broker_ids
from tools.kafka_jars import KAFKA_39_VERSION, KAFKA_VERSION, REPOSITORY, kafka_jars

Kind = Literal["lograft", "kafka", "kafka39"]
#: The kinds that are compared with each other.
KINDS: Final[tuple[Kind, ...]] = ("lograft", "kafka")
#: The kinds that Lograft's client supports.
CONFORMANCE_KINDS: Final[tuple[Kind, ...]] = (*KINDS, "kafka39")
HOST: Final = "127.0.0.1"
NODE_ID: Final = 1
#: A valid Kafka uuid: 16 bytes in URL-safe base64.
CLUSTER_ID: Final = "bG9ncmFmdC10ZXN0cy0xMQ"
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
LOG_TAIL_BYTES: Final = 6000

#: Tests start many short JVMs on few cores: the cheap compiler and collector start fastest.
SMALL_JVM: Final = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: Like Kafka's start script, with the heap of the benchmark.
SERVER_JVM: Final = (
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class ServerFailed(Exception):
    """The server did not start or stop as expected; the message ends with its last output."""


@dataclass
class Server:
    """A node. Values are set before start(); a stopped server can be started again."""

    kind: Kind
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = SMALL_JVM
    port: int = field(default_factory=lambda: free_port())
    controller_port: int = field(default_factory=lambda: free_port())
    process: subprocess.Popen[bytes] | None = None
    #: Lograft prints tracebacks of failures; otherwise it prints a sentence, as for users.
    shows_traces: bool = True
    node_id: int = NODE_ID
    host: str = HOST
    #: Inserted before the command that starts it: `ip netns exec …`.
    prefix: tuple[str, ...] = ()
    #: controller.quorum.voters of a cluster; empty: the quorum is in the log and can change.
    voters: str = ""
    #: controller.quorum.bootstrap.servers, if it is not this node alone.
    quorum_servers: str = ""
    #: How its folder is formatted, if the quorum is in the log.
    format_option: str = "--standalone"
    #: Further arguments of `format`: ("--release-version", "3.9").
    format_arguments: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: Kind, folder: Path, *, settings: Mapping[str, str] | None = None) -> "Server":
        return cls(kind, folder, dict(settings or {}))

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def controller(self) -> str:
        return f"{self.host}:{self.controller_port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    @property
    def properties_path(self) -> Path:
        return self.folder / "server.properties"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    def using_data_of(self, other: "Server") -> "Server":
        """Returns a node that will start on a copy of the (stopped) other node's files. The
        metadata log contains the address of the quorum's only voter, so the copy uses the same
        address."""
        shutil.copytree(other.data, self.data, dirs_exist_ok=True)
        self.controller_port = other.controller_port
        return self

    def start(self) -> "Server":
        """Returns when the node responds to a client and has registered as a broker."""
        self.launch()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not broker_ids(self.host, self.port):
            if self.has_ended_within(0.02):
                raise ServerFailed(f"{self.kind} ended while starting\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self.kind} did not become ready\n{self.log_tail()}")
        return self

    def launch(self) -> None:
        """Starts the process without waiting for it; formats its folder on first use."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_properties()
        with self.log_path.open("ab") as log:
            if not (self.data / "meta.properties").exists():
                self.format(log)
            self.process = subprocess.Popen(
                [*self.prefix, *self.start_command()],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=os.environ | ({"LOGRAFT_TRACE": "1"} if self.shows_traces else {}),
            )

    def format(self, log: IO[bytes]) -> None:
        done = subprocess.run(
            self.format_command(), stdout=log, stderr=subprocess.STDOUT, timeout=START_SECONDS_MAX
        )
        if done.returncode != 0:
            raise ServerFailed(f"{self.kind} could not format its folder\n{self.log_tail()}")

    def stop(self) -> None:
        """A clean shutdown, as by an operator."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
            if not self.has_ended_within(STOP_SECONDS_MAX):
                self.process.kill()
                self.process.wait()
                raise ServerFailed(f"{self.kind} did not stop\n{self.log_tail()}")
        self.process = None

    def has_ended_within(self, seconds: float) -> bool:
        assert self.process is not None
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @contextmanager
    def started(self) -> Iterator["Server"]:
        try:
            yield self.start()
        finally:
            self.stop()

    def log_tail(self) -> str:
        if not self.log_path.exists():
            return "(no output)"
        text = self.log_path.read_bytes()[-LOG_TAIL_BYTES:]
        return f"--- {self.log_path} ---\n{text.decode(errors='replace')}"

    def write_properties(self) -> None:
        values = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.controller}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            **self.quorum_settings(),
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        lines = [f"{name}={value}" for name, value in values.items()]
        self.properties_path.write_text("\n".join(lines) + "\n")

    def quorum_settings(self) -> dict[str, str]:
        if self.voters:
            return {"controller.quorum.voters": self.voters}
        return {"controller.quorum.bootstrap.servers": self.quorum_servers or self.controller}

    def format_command(self) -> list[str]:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties_path)]
        arguments += [] if self.voters else [self.format_option]
        arguments += self.format_arguments
        if self.kind == "lograft":
            return [*lograft_command(), "storage", *arguments]
        return [*self.java_command(SMALL_JVM), "kafka.tools.StorageTool", *arguments]

    def start_command(self) -> list[str]:
        if self.kind == "lograft":
            return [*lograft_command(), "server", str(self.properties_path)]
        logging = REPOSITORY / "tools" / "kafka" / "log4j2-server.properties"
        options = (*self.jvm, f"-Dlog4j2.configurationFile={logging}")
        return [*self.java_command(options), "kafka.Kafka", str(self.properties_path)]

    def java_command(self, options: tuple[str, ...]) -> list[str]:
        version = KAFKA_39_VERSION if self.kind == "kafka39" else KAFKA_VERSION
        return java_command(options, version)


def lograft_command() -> list[str]:
    beside_python = Path(sys.executable).parent / "lograft"
    return [str(beside_python) if beside_python.exists() else "lograft"]


def java_command(options: tuple[str, ...], version: str = KAFKA_VERSION) -> list[str]:
    return ["java", *options, "-cp", f"{kafka_jars(version)}/*"]


def free_port() -> int:
    """Returns a port below the range of ports that the kernel assigns to clients. No other process
    uses it before the server binds it, except for another caller of this function."""
    for _attempt in range(100):
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free port found")


def is_full_run() -> bool:
    """LOGRAFT_INTEROP=full selects the long form of the interop tests."""
    return os.environ.get("LOGRAFT_INTEROP") == "full"


def in_full_run(*values: str) -> list[Any]:
    """Marks the values of a parameter that the short form omits."""
    return [pytest.param(value, marks=full_run_only()) for value in values]


def full_run_only() -> pytest.MarkDecorator:
    """Marks tests that the short form omits."""
    return pytest.mark.skipif(not is_full_run(), reason="LOGRAFT_INTEROP=full")


def compares_two() -> pytest.MarkDecorator:
    """Marks tests that compare Lograft with Kafka."""
    return pytest.mark.skipif(len(kinds_under_test()) < 2, reason="compares two servers")


def kinds_under_test(among: tuple[Kind, ...] = KINDS) -> tuple[Kind, ...]:
    """LOGRAFT_TEST_SERVERS selects the servers of the client tests: one kind, `both` Lograft and
    Kafka 4.3.1, or `all`."""
    wanted = os.environ.get("LOGRAFT_TEST_SERVERS", "lograft")
    chosen = {"both": KINDS, "all": CONFORMANCE_KINDS}.get(wanted, (wanted,))
    return tuple(kind for kind in among if kind in chosen)


def skip_before_4(server: Server, what: str) -> None:
    """Marks tests of features that Kafka has since 4.0."""
    if server.kind == "kafka39":
        pytest.skip(f"Kafka {KAFKA_39_VERSION} has no {what}")
