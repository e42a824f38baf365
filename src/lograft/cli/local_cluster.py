"""`lograft start --nodes N`: a cluster on this machine, in which every node is a process.

The data directory contains a directory for each node, `node-1` and so on, with

    server.properties   the node's settings, written at every start because the ports may change
    data                its log dir
    node.log            its log messages

A node that has exited can be restarted with `lograft server …/server.properties`. The nodes run in
sessions of their own, so that Ctrl-C reaches only this process, which then stops all of them.
"""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lograft.broker.quorum.formatting import FormatRequest, format_directories
from lograft.cli.output import show, table, warn
from lograft.model.errors import InvalidInput, LograftError
from lograft.model.settings.broker import broker_config
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.storage.log_dirs import META_PROPERTIES, read_meta_properties

#: Limit of default.replication.factor, which otherwise is the number of nodes.
_REPLICAS_MAX: Final = 3
_SETTINGS: Final = "server.properties"
_HOST: Final = "localhost"
_STOP_SECONDS_MAX: Final = 60
#: The reason for an exit is searched in this many bytes at the end of the node's log.
_LOG_END_BYTES: Final = 16 << 10


class NodeExited(LograftError):
    """A node exited before the cluster was complete, or all nodes have exited."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    node_id: int
    folder: Path
    port: int
    controller_port: int
    http_port: int

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def settings_file(self) -> Path:
        return self.folder / _SETTINGS

    @property
    def log(self) -> Path:
        return self.folder / "node.log"


def start_cluster(data: str, port: int, count: int, log_format: str = "text") -> None:
    """Runs a cluster until a signal stops it. Clients connect to the `count` ports from `port` on,
    controllers to the `count` ports after these, and HTTP clients to the next `count`; 0 lets the
    system choose all of them."""
    folder = Path(data)
    _check_folder(folder, count)
    ports = _choose_ports(port, 3 * count)
    nodes = [
        LocalNode(number + 1, folder / f"node-{number + 1}", *ports[number::count])
        for number in range(count)
    ]
    _write_settings_and_format(nodes, log_format)
    asyncio.run(_run(nodes))


def cluster_size(folder: Path) -> int:
    """Returns the number of nodes of the cluster in a directory; 0 if there is none. The settings
    of all nodes are written before the first node is formatted."""
    if not any(folder.glob(f"node-*/data/{META_PROPERTIES}")):
        return 0
    return len(list(folder.glob(f"node-*/{_SETTINGS}")))


def _check_folder(folder: Path, count: int) -> None:
    if "," in str(folder):
        raise InvalidInput("--data takes one directory, whose name cannot contain a comma")
    if (folder / META_PROPERTIES).exists():
        raise InvalidInput(
            f"{folder} contains the data of a single node: start it without --nodes, or specify"
            " another directory with --data"
        )
    size = cluster_size(folder)
    if size not in (0, count):
        raise InvalidInput(
            f"{folder} contains a cluster of {size} nodes: start it with --nodes {size}, or specify"
            " another directory with --data"
        )


def _choose_ports(first: int, count: int) -> Sequence[int]:
    with ExitStack() as reserved:
        if not first:
            servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
            return [reserved.enter_context(server).getsockname()[1] for server in servers]
        ports = range(first, first + count)
        if ports[-1] > 65535:
            raise InvalidInput(
                f"the cluster needs ports {first} to {ports[-1]}, which exceeds the maximum 65535:"
                " choose a lower --port"
            )
        for port in ports:
            try:
                reserved.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError as error:
                raise InvalidInput(
                    f"port {port} is not available ({error.strerror}), and the cluster needs ports"
                    f" {first} to {ports[-1]}: choose another --port"
                ) from None
        return ports


def _write_settings_and_format(nodes: Sequence[LocalNode], log_format: str) -> None:
    """Writes the settings of all nodes, then formats the log dirs that are new."""
    for node in nodes:
        node.data.mkdir(parents=True, exist_ok=True)
        properties = _properties(node, nodes) | {"lograft.log.format": log_format}
        lines = (f"{name}={_escape(value)}\n" for name, value in properties.items())
        node.settings_file.write_text("".join(lines), encoding="utf-8")
    disk, randomness = RealDisk(), SystemRandomness()
    metas = {node: read_meta_properties(disk, str(node.data)) for node in nodes}
    request = FormatRequest.for_new_cluster(randomness, controllers=None)
    cluster_ids = {meta.cluster_id for meta in metas.values() if meta is not None}
    if cluster_ids:
        request = FormatRequest(cluster_id=cluster_ids.pop())
    new = [node for node, meta in metas.items() if meta is None]
    for node in new:
        config = broker_config(_properties(node, nodes))
        now_ms = SystemClock().wall_ms()
        format_directories(disk, config, request, randomness=randomness, now_ms=now_ms)
    if new:
        print(f"Formatted {new[0].folder.parent} for {len(nodes)} nodes.", flush=True)


def _properties(node: LocalNode, nodes: Sequence[LocalNode]) -> dict[str, str]:
    voters = (f"{each.node_id}@{_HOST}:{each.controller_port}" for each in nodes)
    replicas = min(len(nodes), _REPLICAS_MAX)
    in_sync_min = max(1, replicas - 1)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{_HOST}:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": str(node.data.absolute()),
        "lograft.http.listeners": f"http://{_HOST}:{node.http_port}",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync_min),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync_min),
    }


def _escape(value: str) -> str:
    """Escapes a value for a .properties file."""
    return value.replace("\\", "\\\\")


# ── the processes ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _RunningNode:
    node: LocalNode
    process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, node: LocalNode) -> "_RunningNode":
        with node.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # The absolute path distinguishes this process from nodes of other clusters.
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    "lograft",
                    "server",
                    str(node.settings_file.resolve()),
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return cls(node, process)

    async def wait_listening(self) -> bool:
        """Returns whether the node serves clients; False when it has exited instead."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            if b"is listening on" in line:
                return True
        return False

    def describe_exit(self) -> str:
        code = self.process.returncode
        assert code is not None
        node = f"node {self.node.node_id} ({self.node.address})"
        if code < 0:
            return f"{node} was killed by {signal.Signals(-code).name}"
        error = last_error(self.node.log) if code > 0 else None
        reason = f": {error}" if error is not None else ""
        return f"{node} exited with code {code}{reason}"


async def _run(nodes: Sequence[LocalNode]) -> None:
    stop = asyncio.Event()
    running: list[_RunningNode] = []

    def on_signal() -> None:
        """The first signal stops the nodes, the second kills them."""
        if stop.is_set():
            _send(running, signal.SIGKILL)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    try:
        for node in nodes:
            running.append(await _RunningNode.start(node))
        await _watch(running, stop)
    finally:
        stop.set()
        await _stop_all(running)


async def _watch(running: Sequence[_RunningNode], stop: asyncio.Event) -> None:
    """Reports each node that exits. Returns when `stop` is set; raises NodeExited if the cluster
    does not start, or when all nodes have exited."""
    async with asyncio.TaskGroup() as tasks:
        exits = {tasks.create_task(each.process.wait()): each for each in running}
        listening = [tasks.create_task(each.wait_listening()) for each in running]
        stopping = tasks.create_task(stop.wait())
        pending: set[asyncio.Task[None] | asyncio.Task[int] | asyncio.Task[bool]]
        pending = {stopping, *exits, *listening}
        is_complete = False
        failure: NodeExited | None = None
        while failure is None and not stopping.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            exited = [each for task, each in exits.items() if task in done]
            alive = sum(not task.done() for task in exits)
            if exited and not is_complete and not stopping.done():
                failure = NodeExited(
                    f"{exited[0].describe_exit()}; see its log {exited[0].node.log}"
                )
            elif exited and not alive:
                failure = NodeExited(f"{exited[0].describe_exit()}; all nodes have exited")
            elif not stopping.done():
                _report_exits(exited, alive=alive, total=len(running))
            if (
                not is_complete
                and failure is None
                and all(task.done() and task.result() for task in listening)
            ):
                is_complete = True
                _show_addresses(running)
        for task in pending:
            task.cancel()
    if failure is not None:
        raise failure


def _report_exits(exited: Iterable[_RunningNode], *, alive: int, total: int) -> None:
    for each in exited:
        warn(
            f"{each.describe_exit()}; {alive} of {total} nodes are running."
            f" Restart it with: lograft server {each.node.settings_file}"
        )


def _show_addresses(running: Sequence[_RunningNode]) -> None:
    rows = [
        (
            str(each.node.node_id),
            each.node.address,
            str(each.process.pid),
            f"http://{_HOST}:{each.node.http_port}/metrics",
            str(each.node.log),
        )
        for each in running
    ]
    show(table(("NODE", "ADDRESS", "PID", "METRICS", "LOG"), rows))
    addresses = ",".join(each.node.address for each in running)
    print(f"Lograft is listening on {addresses} (Ctrl-C stops all nodes)", flush=True)


async def _stop_all(running: Sequence[_RunningNode]) -> None:
    """Stops the nodes concurrently, and kills those that do not stop in time."""
    _send(running, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS_MAX):
            for each in running:
                await each.process.wait()
    except TimeoutError:
        late = [each for each in running if each.process.returncode is None]
        for each in late:
            warn(f"killing node {each.node.node_id}: it did not stop within {_STOP_SECONDS_MAX} s")
        _send(late, signal.SIGKILL)
        for each in late:
            await each.process.wait()


def _send(running: Iterable[_RunningNode], number: signal.Signals) -> None:
    for each in running:
        if each.process.returncode is None:
            each.process.send_signal(number)


def last_error(log: Path) -> str | None:
    """Returns the last error message of the command `lograft` in a log."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LOG_END_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    errors = [error for line in lines if (error := _error_of(line)) is not None]
    return errors[-1] if errors else None


def _error_of(line: str) -> str | None:
    """Returns the error message of the command in a line of a log, which may be in JSON."""
    if line.startswith("lograft: "):
        return line.removeprefix("lograft: ")
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except ValueError:
            return None  # cut off
        if record.get("level") == "CRITICAL":
            return str(record.get("message"))
    return None
