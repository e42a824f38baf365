"""The client of the key-value store.

    python -m examples.raft_kv.client host:port:id,… KEY              prints the value
    python -m examples.raft_kv.client host:port:id,… KEY VALUE        sets it
    python -m examples.raft_kv.client host:port:id,… --delete KEY
    python -m examples.raft_kv.client host:port:id,… --add-peer host:port:id
    python -m examples.raft_kv.client host:port:id,… --remove-peer ID
    python -m examples.raft_kv.client host:port:id,… --status

Exit codes: 0 success · 1 the key does not exist · 2 invalid command line, or rejected · 3 no
response in time; a change may or may not have been made.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    # Started as a script: the packages are two directories up.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from examples.raft_kv.addresses import Peer, parse_peer, parse_peers
from examples.raft_kv.kv_client import CommandRejected, KvClient, OutcomeUnknown
from examples.raft_kv.packing import Value
from lograft.model.errors import InvalidInput
from lograft.net.sockets import SocketTransport
from lograft.runtime import event_loop
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers

DONE, NO_SUCH_KEY, WRONG, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="raft_kv client", description="Reads and writes a replicated key-value store."
    )
    parser.add_argument("servers", help="host:port:id,… of any servers of the cluster")
    parser.add_argument("key", nargs="?")
    parser.add_argument("value", nargs="?", help="sets the key; without it the key is read")
    parser.add_argument("--delete", metavar="KEY")
    parser.add_argument("--add-peer", metavar="HOST:PORT:ID", help="a running server votes now")
    parser.add_argument("--remove-peer", metavar="ID", type=int, help="a server votes no more")
    parser.add_argument("--status", action="store_true", help="how each named server is")
    parser.add_argument("--timeout-seconds", type=float, default=10.0)
    arguments = parser.parse_intermixed_args()
    requested = (arguments.key, arguments.delete, arguments.add_peer, arguments.remove_peer)
    if sum(each is not None for each in requested) + arguments.status != 1:
        parser.error("give a key, or one of --delete, --add-peer, --remove-peer and --status")
    return arguments


async def _run(arguments: argparse.Namespace, peers: Sequence[Peer]) -> tuple[int, str]:
    """Returns the exit code and the output, which goes to stderr if the code signals an error."""
    workers = ThreadWorkers()
    try:
        async with asyncio.TaskGroup() as group:
            runtime = system_runtime(transport=SocketTransport(), workers=workers, task_group=group)
            client = KvClient(
                runtime,
                [peer.address for peer in peers],
                timeout_ms=int(arguments.timeout_seconds * 1000),
            )
            try:
                return await _do(client, arguments, peers)
            except (InvalidInput, CommandRejected) as error:
                return WRONG, f"raft_kv: {error}"
            except OutcomeUnknown as error:
                return NO_ANSWER, f"raft_kv: {error}"
            finally:
                client.close()
    finally:
        workers.close()


async def _do(
    client: KvClient, arguments: argparse.Namespace, peers: Sequence[Peer]
) -> tuple[int, str]:
    if arguments.status:
        return DONE, "\n".join([await _status(client, peer) for peer in peers])
    if arguments.add_peer is not None:
        await client.add_peer(parse_peer(arguments.add_peer))
    elif arguments.remove_peer is not None:
        await client.remove_peer(arguments.remove_peer)
    elif arguments.delete is not None:
        return (DONE if await client.delete(_bytes(arguments.delete)) else NO_SUCH_KEY), ""
    elif arguments.value is not None:
        await client.set(_bytes(arguments.key), _bytes(arguments.value))
    else:
        value = await client.get(_bytes(arguments.key))
        return (NO_SUCH_KEY, "") if value is None else (DONE, _text(value))
    return DONE, ""


def _bytes(argument: str) -> bytes:
    """The original bytes of the arguments, even if they are not valid UTF-8."""
    return argument.encode(errors="surrogateescape")


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


async def _status(client: KvClient, peer: Peer) -> str:
    try:
        status = await client.status(peer.address)
    except OutcomeUnknown as error:
        return f"server {peer.node_id}: {error}"
    fields = [f"{name} {_format_value(value)}" for name, value in status.items() if name != "id"]
    return f"server {_format_value(status['id'])}: {', '.join(fields)}"


def _format_value(value: Value) -> str:
    if isinstance(value, tuple):
        return " ".join(_format_value(each) for each in value)
    return value.hex() if isinstance(value, bytes) else str(value)


def main() -> None:
    arguments = _arguments()
    try:
        code, output = event_loop.run(_run(arguments, parse_peers(arguments.servers)))
    except InvalidInput as error:
        code, output = WRONG, f"raft_kv: {error}"
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if output:
        print(output, file=sys.stderr if code in (WRONG, NO_ANSWER) else sys.stdout)
    sys.exit(code)


if __name__ == "__main__":
    main()
