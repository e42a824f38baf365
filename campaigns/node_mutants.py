"""Mutants of a node: each removes one safeguard, which the checkers of the history must detect."""

from random import Random
from typing import Any, Final

from campaigns.mutants import Patch, hunt_with
from campaigns.node import Fault, NodeOptions, run_node
from lograft.broker.coordinators.producer_ids import ProducerIds
from lograft.broker.logs.checkpoints import Checkpoints
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.replication.isr_leader import IsrLeader
from lograft.storage import flush_plan
from lograft.storage.producers import ProducerStates

SEEDS_MAX: Final = 60


def _do_nothing(*_: Any, **__: Any) -> None:
    return None


def _commit_at_once(self: IsrLeader, end: Any) -> bool:
    self.end = end
    self.high_watermark = max(self.high_watermark, end)
    return True


def _ids_from_zero(self: Any) -> Any:
    async def fetch() -> None:
        self._next, self._end = 0, 1_000

    return fetch()


def _recovery_point_is_end(*arguments: Any) -> Any:
    pairs = list(arguments[2])
    taken = _TAKE(arguments[0], arguments[1], pairs, arguments[3])
    for _, log in pairs:
        taken.recovery_points[log.topic_partition] = log.end_offset
    return taken


_TAKE: Final[Any] = Checkpoints.take

NODE_MUTANTS: Final[dict[str, tuple[str, list[Patch]]]] = {
    "acknowledged before its fsync": (
        "flush.messages=1 does not delay acks=all",
        [(IsrLeader, "on_appended", _commit_at_once)],
    ),
    "flushes do nothing": (
        "no log is ever fsynced",
        [(flush_plan.FlushPlan, "run", _do_nothing)],
    ),
    "metadata not fsynced": (
        "the controller acknowledges records that are only in the page cache",
        [(RaftDriver, "_flush", _do_nothing)],
    ),
    "recovery point at the log end": (
        "the recovery point is always the log end offset",
        [(Checkpoints, "take", staticmethod(_recovery_point_is_end))],
    ),
    "duplicates are appended": (
        "sequences of idempotent producers are not checked",
        [(ProducerStates, "check", _do_nothing)],
    ),
    "producer IDs start at zero": (
        "a restarted broker assigns producer IDs a second time",
        [(ProducerIds, "_fetch", _ids_from_zero)],
    ),
}


def hunt_node(name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0) -> int | None:
    """Returns the number of seeds until the mutant is caught, or None."""
    return hunt_with(_fails, NODE_MUTANTS[name][1], seeds=range(first, first + seeds_max))


def _plan_power_losses(seed: int) -> NodeOptions:
    """Plans power losses in quick succession, many at disk operations, that is, before an fsync."""
    random = Random(f"{seed}:guided")
    kinds = ("power", "crash-power", "crash-power", "stop", "reset")
    faults = [
        Fault(at_ms + random.randrange(600), random.choice(kinds), random.randint(1, 60))
        for at_ms in range(200, 5_400, 650)
    ]
    return NodeOptions(seconds=6, policy="uniform", faults=faults)


def _fails(seed: int) -> bool:
    try:
        return bool(run_node(seed, _plan_power_losses(seed)).violations)
    except Exception:
        return True
