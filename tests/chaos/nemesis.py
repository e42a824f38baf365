"""Injects faults into a single node: kills it at any moment, pauses it, restarts it.

The faults are drawn from the seed before the run; their exact timing relative to the clients
depends on the machine."""

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from lograft.model.types import TopicPartition
from tests.chaos.raw_client import EARLIEST, LATEST, ErrorResponse, RawClient
from tests.chaos.recording import TRANSIENT, Run
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
#: A node starts faster than this, so a kill within this time often happens during its recovery.
STARTING_SECONDS_MAX: Final = 0.5
STOPPING_SECONDS_MAX: Final = 0.08
PAUSE_SECONDS: Final = (0.2, 3.0)
LOOKUP_SECONDS_MAX: Final = 10.0


class Fault(NamedTuple):
    kind: Kind
    #: Time without faults before this one.
    rest_seconds: float
    #: How long it is down or paused, or how long after its start or stop it is killed.
    seconds: float


class NodeExited(Exception):
    """The node exited unexpectedly."""


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
        """SIGKILL; the page cache is kept."""
        self._server.kill()
        self.kills += 1
        self._run.history.record("nemesis", "probe", "crash", kind="kill")

    def start(self) -> None:
        start = time.monotonic()
        self._server.start()
        self.start_seconds.append(time.monotonic() - start)
        self.record_recovered()

    def record_recovered(self) -> None:
        """Records the offsets of the node after its start."""
        with RawClient(self._server.port, name="nemesis") as client:
            for tp in self._partitions:
                start, end = (
                    offset_with_retries(client, tp, EARLIEST),
                    offset_with_retries(client, tp, LATEST),
                )
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
        self.start()

    def _check_alive(self) -> None:
        process = self._server.process
        if process is None or process.poll() is not None:
            raise NodeExited(self._server.log_tail())


def offset_with_retries(client: RawClient, tp: TopicPartition, timestamp: int) -> int:
    """Looks up an offset, with retries while the node is starting."""
    deadline = time.monotonic() + LOOKUP_SECONDS_MAX
    while True:
        try:
            return client.offset_at(tp, timestamp)
        except OSError:
            if time.monotonic() > deadline:
                raise
        except ErrorResponse as error:
            if error.code not in TRANSIENT or time.monotonic() > deadline:
                raise
        time.sleep(0.02)
