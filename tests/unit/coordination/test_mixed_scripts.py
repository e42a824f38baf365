"""Runs the scenarios in tests/scripts/mixed_groups; REWRITE_SCRIPTS=1 writes their output anew.

As test_consumer_scripts, with classic members besides: `classic a t` is one of the topic t, which
then can `rejoin`, `sync` (a leader with assignments: `sync a a=t:0 b=t:1`), `hb` and `quit`.
"""

from pathlib import Path

import pytest

from lograft.coordination.classic_group import ClassicGroup
from lograft.model.errors import ErrorCode
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from lograft.wire.messages.heartbeat import HeartbeatResponse
from lograft.wire.messages.join_group import JoinGroupResponse
from lograft.wire.messages.leave_group import LeaveGroupResponse
from lograft.wire.messages.sync_group import SyncGroupResponse
from tests.unit.coordination.classic_client import ClassicConsumer, Named
from tests.unit.coordination.test_consumer_scripts import Scenario, run_script

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "mixed_groups").glob("*.txt"))


class MixedScenario(Scenario):
    def do_shard(self, **settings: str) -> list[str]:
        super().do_shard(**{"group_initial_rebalance_delay_ms": "0", **settings})
        self.classics: dict[str, ClassicConsumer] = {}
        return []

    def state(self) -> list[str]:
        """Member ids of classic consumers are long, so the output has their names."""
        group = self.shard.shard.groups.get("g")
        lines = super().state()
        if isinstance(group, ClassicGroup):
            lines = [f"({group.kind.value} {group.state_name} generation={group.generation})"]
        for name, client in self.classics.items():
            if client.member_id:
                lines = [line.replace(client.member_id, name) for line in lines]
        return lines

    def responses(self, name: str) -> list[str]:
        lines = []
        for who, answer in self.shard.replies:
            if isinstance(answer, ConsumerGroupHeartbeatResponse):
                lines += self.told_to_consumer(who, answer)
            else:
                lines.append(f"{who}: {self._classic_answer(self.classics[who], answer)}")
        return lines

    def _classic_answer(self, client: ClassicConsumer, answer: Message) -> str:
        if isinstance(answer, LeaveGroupResponse):
            code = ErrorCode(answer.error_code or answer.members[0].error_code)
            return "left" if code is ErrorCode.NONE else code.name
        assert isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
        if isinstance(answer, JoinGroupResponse):
            client.joined(answer)
            leads = " as leader" if answer.leader and answer.leader == answer.member_id else ""
            text = f"joined {answer.generation_id} with {answer.protocol_name}{leads}"
        elif isinstance(answer, SyncGroupResponse):
            client.synced(answer)
            text = f"synced, has {_shown(client.has)}"
        else:
            text = "alive"
        return ErrorCode(answer.error_code).name if answer.error_code else text

    # The commands.

    def do_classic(
        self,
        name: str,
        topics: str,
        *,
        instance: str | None = None,
        protocols: str = "range",
        coop: str = "",
        session: str = "10000",
        rebalance: str = "30000",
    ) -> list[str]:
        client = self.classics[name] = ClassicConsumer(self.shard, name)
        client.topics, client.instance_id = topics.split(","), instance
        client.protocols, client.is_cooperative = protocols.split(","), bool(coop)
        self._timeouts = (int(session), int(rebalance))
        return self.do_rejoin(name)

    def do_rejoin(self, name: str, *, topics: str | None = None) -> list[str]:
        client = self.classics[name]
        if topics is not None:
            client.topics = topics.split(",")
        session_ms, rebalance_ms = self._timeouts
        client.join(session_ms=session_ms, rebalance_ms=rebalance_ms)
        lines = self.responses(name)
        if lines == [f"{name}: MEMBER_ID_REQUIRED"]:
            client.join(session_ms=session_ms, rebalance_ms=rebalance_ms)
            lines = self.responses(name)
        return lines

    def do_sync(self, name: str, **assigned: str) -> list[str]:
        given = {self.classics[who].member_id: _read(text) for who, text in assigned.items()}
        self.classics[name].sync(given)
        return self.responses(name)

    def do_hb(self, name: str) -> list[str]:
        self.classics[name].beat()
        return self.responses(name)

    def do_quit(self, name: str, *flags: str) -> list[str]:
        """`by-instance`: an administrator removes it."""
        self.classics[name].leave(by_instance="by-instance" in flags)
        return self.responses(name)

    def do_pass(self, ms: str) -> list[str]:
        super().do_pass(ms)
        return self.responses("")

    def do_ccommit(self, name: str, epoch: str) -> list[str]:
        return self.do_commit(self.classics[name].member_id, epoch)


def _read(text: str) -> Named:
    topic, _, partitions = text.partition(":")
    return {topic: [int(each) for each in partitions.split(",")]} if topic else {}


def _shown(has: Named) -> str:
    parts = [f"{topic}:{','.join(map(str, found))}" for topic, found in sorted(has.items())]
    return " ".join(parts) or "-"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    run_script(path, MixedScenario())


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 5
