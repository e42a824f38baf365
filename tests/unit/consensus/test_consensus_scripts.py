"""Runs the scenarios in tests/scripts/consensus; REWRITE_SCRIPTS=1 rewrites their output."""

import os
from pathlib import Path
from uuid import UUID

import pytest

from lograft.consensus.core import RaftCore
from lograft.consensus.errors import NotLeading
from lograft.consensus.types import Effects, HardState, LogEnd, ReplicaKey, VoterSet
from lograft.model.types import NO_NODE, Epoch, NodeId, Offset
from tests.unit.consensus.raft_scenario import ClusterScenario

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "consensus").glob("*.txt"))
DISK = UUID(int=7)


class Scenario:
    """One replica; each command is a call of the driver, and its output the effects of the core."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.core = self.replica("voters=1")

    def replica(self, *words: str) -> RaftCore:
        given = dict(word.split("=") for word in words)
        voted = given.get("voted")
        return RaftCore(
            ReplicaKey(NodeId(int(given.get("me", 1))), DISK),
            VoterSet.of(ReplicaKey(NodeId(int(v)), DISK) for v in given["voters"].split(",")),
            hard_state=HardState(
                Epoch(int(given.get("epoch", -1))),
                NodeId(int(given.get("leader", NO_NODE))),
                None if voted is None else ReplicaKey(NodeId(int(voted)), DISK),
            ),
            log_end=LogEnd(
                Epoch(int(given.get("log_epoch", -1))), Offset(int(given.get("end", 0)))
            ),
            trace=self.trace.append,
        )

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        self.trace.clear()
        try:
            effects = self.call(verb, words)
        except NotLeading as error:
            return f"NotLeading: {error}"
        return "\n".join([*self.trace, *describe(effects), self.state()])

    def call(self, verb: str, words: list[str]) -> Effects | None:
        match verb:
            case "replica":
                self.core = self.replica(*words)
                return None
            case "start":
                return self.core.start(0)
            case "tick":
                return self.core.tick(int(words[0]))
            case "persisted":
                return self.core.on_persisted(0)
            case "appended":
                return self.core.on_appended(Offset(int(words[0])), 0)
            case "durable":
                return self.core.on_durable(Offset(int(words[0])), 0)
            case "resign":
                return self.core.resign(0)
            case _:
                raise AssertionError(f"no such command: {verb}")

    def state(self) -> str:
        core = self.core
        return (
            f"{core.role.value} epoch={core.epoch} leader={core.leader}"
            f" end={core.log_end.offset} high_watermark={core.high_watermark}"
            f" may_append={'yes' if core.is_leader else 'no'}"
        )


def describe(effects: Effects | None) -> list[str]:
    if effects is None:
        return []
    lines = []
    if effects.persist is not None:
        state = effects.persist
        voted = "nobody" if state.voted_for is None else state.voted_for.node_id
        lines.append(f"persist epoch={state.epoch} leader={state.leader} voted={voted}")
    if effects.lead is not None:
        change = effects.lead
        lines.append(
            f"append leader change epoch={change.epoch} leader={change.leader}"
            f" voters={list(change.voters)} granting={list(change.granting)}"
        )
    if effects.step_down is not None:
        lines.append(f"leads no more epoch={effects.step_down}")
    lines.extend(f"send to={send.to} {send.message}" for send in effects.send)
    if effects.committed is not None:
        lines.append(f"committed {effects.committed}")
    return lines


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    blocks = path.read_text().strip().split("\n\n")
    alone = any(line.startswith("replica ") for line in blocks[0].split("\n"))
    scenario = Scenario() if alone else ClusterScenario()
    actual = ""
    for block in blocks:
        command, _, _ = block.partition("\n----")
        lines = command.split("\n")
        outputs = [scenario.execute(line) for line in lines if not line.startswith("#")]
        output = "\n".join(filter(None, outputs)) or "-"
        actual += f"{command}\n----\n{output}\n\n"
    actual = actual.rstrip("\n") + "\n"
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(actual)
    assert actual == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 4
