"""A server of the key-value store.

    python -m examples.raft_kv.server DATA host:port:id,host:port:id,host:port:id host:port:id

The list contains the initial servers of the cluster; the last argument is this server. A server
that is not in the list waits until it is added (`client --add-peer`).
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

if not __package__:
    # Started as a script: the packages are two directories up.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from examples.raft_kv.addresses import Peer, parse_peer, parse_peers
from examples.raft_kv.driver import DriverSettings
from examples.raft_kv.node import KvNode
from lograft.consensus.types import RaftSettings
from lograft.model.errors import InvalidInput, LograftError
from lograft.net.sockets import SocketTransport
from lograft.runtime import event_loop
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers

SEGMENT_BYTES_MIN = 4 << 10


class _Stopping(Exception):
    """Cancels the task group, and with it all tasks."""


def _arguments() -> argparse.Namespace:
    defaults, raft = DriverSettings(), RaftSettings()
    parser = argparse.ArgumentParser(
        prog="raft_kv server", description="One server of a replicated key-value store."
    )
    parser.add_argument("data", help="data directory of this server, created if it does not exist")
    parser.add_argument("peers", help="host:port:id,… of the initial servers of the cluster")
    parser.add_argument("me", help="host:port:id of this server")
    for name, default, what in (
        (
            "--snapshot-bytes",
            defaults.snapshot_bytes,
            "bytes of log between two snapshots",
        ),
        (
            "--snapshot-seconds",
            defaults.snapshot_seconds,
            "time between two snapshots, if the log grows",
        ),
        ("--segment-bytes", defaults.segment_bytes, "size of a log segment"),
        ("--election-timeout-ms", raft.election_timeout_ms, "timeout of an election"),
        ("--fetch-timeout-ms", raft.fetch_timeout_ms, "timeout of a follower for its leader"),
    ):
        parser.add_argument(name, type=int, default=default, help=f"{what} (default: {default})")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> DriverSettings:
    if arguments.segment_bytes < SEGMENT_BYTES_MIN:
        raise InvalidInput(f"--segment-bytes must be {SEGMENT_BYTES_MIN} or more")
    for name in ("snapshot_bytes", "snapshot_seconds", "election_timeout_ms", "fetch_timeout_ms"):
        if getattr(arguments, name) <= 0:
            raise InvalidInput(f"--{name.replace('_', '-')} must be above 0")
    return DriverSettings(
        raft=RaftSettings(
            election_timeout_ms=arguments.election_timeout_ms,
            election_backoff_max_ms=arguments.election_timeout_ms,
            fetch_timeout_ms=arguments.fetch_timeout_ms,
            request_timeout_ms=arguments.fetch_timeout_ms,
            fetch_wait_ms=min(500, max(arguments.fetch_timeout_ms // 4, 1)),
        ),
        snapshot_bytes=arguments.snapshot_bytes,
        snapshot_seconds=arguments.snapshot_seconds,
        segment_bytes=arguments.segment_bytes,
    )


async def _serve(data: str, peers: tuple[Peer, ...], me: Peer, settings: DriverSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    workers = ThreadWorkers()
    try:
        async with asyncio.TaskGroup() as group:
            runtime = system_runtime(transport=SocketTransport(), workers=workers, task_group=group)
            node = KvNode(runtime, data, me, peers, settings)
            await node.start()
            print(f"server {me.node_id} is listening on {me.address} (Ctrl-C stops it)", flush=True)
            await stop.wait()
            await node.stop()
            raise _Stopping
    except* _Stopping:
        pass
    finally:
        workers.close()


def _end(error: BaseException) -> NoReturn:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError):
        error = LograftError(error.strerror or str(error))
    if not isinstance(error, LograftError):
        raise error
    sys.exit(f"raft_kv: {error}")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    arguments = _arguments()
    try:
        me, peers = parse_peer(arguments.me), parse_peers(arguments.peers)
        for peer in peers:
            if (peer.node_id == me.node_id) != (peer.address == me.address):
                raise InvalidInput(f"{me} is not the {peer} of the list")
        settings = _settings(arguments)
        event_loop.run(_serve(os.path.abspath(arguments.data), peers, me, settings))
    except KeyboardInterrupt:
        sys.exit(130)
    except (LograftError, OSError, BaseExceptionGroup) as error:
        _end(error)


if __name__ == "__main__":
    main()
