"""Counts the Python calls that one CreateTopics of one topic costs a combined node.

    python -m bench.micro.control_path [--against SRC]

A node of its own (broker and active controller) runs in the simulated world. The request enters at
the handler of a client's connection; everything that the node calls until the response is ready
counts: forwarding, the decision, the metadata log and its replay. Calls of the simulator and of
asyncio do not count. The first requests fill caches and are left out. `--against` (the `src` folder
of another checkout) counts in that source tree too.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import lograft
from lograft.api.router import Router, Session
from lograft.model.exchange import HandlerFactory, PendingReply
from lograft.model.seams import Address, Channel
from lograft.simulation.cluster import SimulatedCluster
from lograft.wire.apis import response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSION: Final = 7
WARM_UP: Final = 3
REQUESTS: Final = 20
SOURCE: Final = str(Path(lograft.__file__).parent)
SIMULATION: Final = f"{SOURCE}/simulation/"
#: Generated writers and readers of messages have no file.
GENERATED: Final = "<"
TOP: Final = 12


class Peer:
    peer = Address("10.0.0.1", 4711)


class CallCounter:
    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        file = code.co_filename
        if file.startswith(SOURCE) and not file.startswith(SIMULATION):
            self.calls[file[len(SOURCE) + 1 :], code.co_name] += 1
        elif file.startswith(GENERATED) and not file.startswith("<frozen"):
            self.calls["compiled codec", code.co_name] += 1


async def create(session: Session, name: str, counter: CallCounter | None = None) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
    frame = frame_request(request, VERSION, correlation_id=7, client_id="bench")[4:]
    sys.setprofile(counter)
    try:
        reply = session.handle_frame(memoryview(bytearray(frame)))
        assert isinstance(reply, PendingReply)
        answer: Any = await reply.response
    finally:
        sys.setprofile(None)
    data = b"".join(answer.parts)[4:]
    _, position = read_response_header(data, response_header_version(request.KEY, VERSION))
    response = read_all(CreateTopicsResponse, VERSION, data, position)
    assert [result.error_code for result in response.topics] == [0], response


def count_calls() -> Counter[tuple[str, str]]:
    """Returns the number of calls of all counted requests together."""
    cluster = SimulatedCluster(nodes=1, seed=1)
    routers: list[Router] = []

    def keep(router: Router) -> HandlerFactory:
        routers.append(router)
        return router

    host = cluster.hosts[1]
    host.interpose = keep
    counter = CallCounter()

    async def scenario() -> None:
        await cluster.start()
        session = next(each for each in routers if each.role == "broker")(cast(Channel, Peer()))

        async def load() -> None:
            for number in range(WARM_UP):
                await create(session, f"warm-{number}")
            for number in range(REQUESTS):
                await create(session, f"counted-{number}", counter)

        assert host.life is not None
        await host.life.run(load(), name="load")

    cluster.run(scenario())
    return counter.calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    options = parser.parse_args()
    calls = count_calls()
    print(f"{calls.total() / REQUESTS:.0f} calls for each CreateTopics of one topic ({SOURCE})")
    for (file, name), count in calls.most_common(TOP):
        print(f"  {count / REQUESTS:6.1f}  {file}: {name}")
    if options.against is not None:
        here = Path(__file__).parents[2]
        path = f"{options.against.absolute()}{os.pathsep}{here}"
        subprocess.run(
            [sys.executable, "-m", "bench.micro.control_path"],
            env={**os.environ, "PYTHONPATH": path},
            cwd=here,
            check=True,
        )


if __name__ == "__main__":
    main()
