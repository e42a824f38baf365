"""Does to one node what happens to nodes: killed at any moment, paused, restarted.

What will be done is drawn from the seed before the run; when exactly it hits what the clients do
is up to the machine.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from lograft.model.types import TopicPartition
from tests.chaos.raw_client import EARLIEST, LATEST, ErrorResponse, RawClient
from tests.chaos.recording import PASSING, Run
from tests.compatibility.servers import Server

Kind = Literal["kill", "kill while starting", "kill while stopping", "pause", "restart"]
WEIGHTS: Final[dict[Kind, int]] = {
    "kill": 6,
    "kill while starting": 2,
    "kill while stopping": 2,
    "pause": 2,
    "restart": 1,
}
REST_SECONDS_MAX: Final = 2.5
DOWN_SECONDS_MAX: Final = 1.0
#: A node comes up in less; a kill within this time often hits its recovery.
STARTING_SECONDS_MAX: Final = 0.5
STOPPING_SECONDS_MAX: Final = 0.08
PAUSE_SECONDS: Final = (0.2, 3.0)
LOOK_SECONDS_MAX: Final = 10.0


class Fault(NamedTuple):
    kind: Kind
    #: Quiet time before.
    rest_seconds: float
    #: How long it is down, paused, or left alone before it is killed on its way.
    seconds: float


class NodeEnded(Exception):
    """The node ended, and nobody had asked it to."""


def plan(seed: int, seconds: float) -> list[Fault]:
    chance = random.Random(f"{seed}-nemesis")
    faults: list[Fault] = []
    spent = 0.0
    while spent < seconds:
        (kind,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        rest = chance.random() * REST_SECONDS_MAX
        match kind:
            case "kill" | "restart":
                lasting = chance.random() ** 3 * DOWN_SECONDS_MAX
            case "kill while starting":
                lasting = chance.random() * STARTING_SECONDS_MAX
            case "kill while stopping":
                lasting = chance.random() * STOPPING_SECONDS_MAX
            case "pause":
                lasting = chance.uniform(*PAUSE_SECONDS)
        faults.append(Fault(kind, rest, lasting))
        spent += rest + lasting
    return faults


class Nemesis:
    def __init__(self, run: Run, server: Server, partitions: Sequence[TopicPartition]) -> None:
        self._run = run
        self._server = server
        self._partitions = partitions
        self.done: Counter[str] = Counter()
        self.kills = 0
        self.start_seconds: list[float] = []

    def carry_out(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            time.sleep(fault.rest_seconds)
            self._check_alive()
            self._do(fault)
            self.done[fault.kind] += 1

    def kill(self) -> None:
        """SIGKILL; the files stay as the page cache has them."""
        self._server.kill()
        self.kills += 1
        self._run.history.record("nemesis", "probe", "crash", kind="kill")

    def up(self) -> None:
        begun = time.monotonic()
        self._server.start()
        self.start_seconds.append(time.monotonic() - begun)
        self.look()

    def look(self) -> None:
        """What the node has after it came up."""
        with RawClient(self._server.port, name="nemesis") as client:
            for tp in self._partitions:
                start, end = patiently(client, tp, EARLIEST), patiently(client, tp, LATEST)
                self._run.history.record(
                    "nemesis", "probe", "recovered", tp=str(tp), start=start, end=end
                )

    def _do(self, fault: Fault) -> None:
        server = self._server
        process = server.process
        assert process is not None
        match fault.kind:
            case "kill":
                self.kill()
                time.sleep(fault.seconds)
            case "kill while starting":
                self.kill()
                server.launch()
                time.sleep(fault.seconds)
                self._check_alive()
                self.kill()
            case "kill while stopping":
                process.terminate()
                time.sleep(fault.seconds)
                self.kill()
            case "pause":
                process.send_signal(signal.SIGSTOP)
                time.sleep(fault.seconds)
                process.send_signal(signal.SIGCONT)
                return
            case "restart":
                server.stop()
                time.sleep(fault.seconds)
        self.up()

    def _check_alive(self) -> None:
        process = self._server.process
        if process is None or process.poll() is not None:
            raise NodeEnded(self._server.log_tail())


def patiently(client: RawClient, tp: TopicPartition, timestamp: int) -> int:
    """The offset, asked again while the node is still coming up."""
    deadline = time.monotonic() + LOOK_SECONDS_MAX
    while True:
        try:
            return client.offset_at(tp, timestamp)
        except OSError:
            if time.monotonic() > deadline:
                raise
        except ErrorResponse as error:
            if error.code not in PASSING or time.monotonic() > deadline:
                raise
        time.sleep(0.02)
