"""Runs the scenarios in tests/scripts/groups; REWRITE_SCRIPTS=1 writes their output anew.

`join a` is a client "a": it uses the member id that it was last given. Member ids end in a number.
"""

import os
import re
from pathlib import Path

import pytest

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_member import Client
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import Offset
from lograft.wire.message import Message
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lograft.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from lograft.wire.records.group_metadata_value import GroupMetadataValue
from tests.unit.coordination.shard_driver import ShardDriver

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "groups").glob("*.txt"))
UUID = re.compile(r"0{8}-0{4}-0{4}-0{4}-0*([1-9a-f][0-9a-f]*)")


class Scenario:
    def __init__(self) -> None:
        self.do_shard()

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        plain = [word for word in words if "=" not in word]
        given = dict(word.split("=", 1) for word in words if "=" in word)
        lines = getattr(self, f"do_{verb}")(*plain, **given)
        return UUID.sub(r"\1", "\n".join([*lines, self.state()]))

    def do_shard(self, **settings: str) -> list[str]:
        """A new coordinator with an empty log. Settings with _ for the dots."""
        self.driver = ShardDriver({name.replace("_", "."): text for name, text in settings.items()})
        #: The state of each client.
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.instances: dict[str, str | None] = {}
        return []

    def state(self) -> str:
        group = self.driver.shard.groups.get("g")
        if group is None:
            return "(no group)"
        assert isinstance(group, ClassicGroup)
        parts = [group.state.value, f"generation={group.generation}"]
        if group.members:
            parts += [f"leader={group.leader}", f"members={','.join(group.members)}"]
        if group.pending:
            parts.append(f"pending={','.join(group.pending)}")
        return f"({' '.join(parts)})"

    def responses(self) -> list[str]:
        lines = []
        for record in self.driver.written:
            value = record.value
            assert value is None or isinstance(value, GroupMetadataValue)
            lines.append("record: " + self.record(value))
        for name, message in self.driver.replies:
            lines.append(f"{name}: {self.reply(name, message)}")
        return lines

    @staticmethod
    def record(value: GroupMetadataValue | None) -> str:
        if value is None:
            return "tombstone"
        members = [
            f"{member.member_id}={bytes(member.assignment).decode()}" for member in value.members
        ]
        return (
            f"{value.protocol_type} generation={value.generation} protocol={value.protocol}"
            f" leader={value.leader} {' '.join(members)}".rstrip()
        )

    def reply(self, name: str, message: Message) -> str:
        match message:
            case JoinGroupResponse(error_code=0):
                self.ids[name] = message.member_id
                self.generations[name] = message.generation_id
                text = [
                    f"{member.member_id}={member.metadata.decode()}" for member in message.members
                ]
                skips = " skips the assignment" if message.skip_assignment else ""
                return (
                    f"{message.member_id} joined generation {message.generation_id}"
                    f" {message.protocol_name} leader={message.leader}{skips} {' '.join(text)}"
                ).rstrip()
            case JoinGroupResponse():
                if message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    self.ids[name] = message.member_id
                return f"{ErrorCode(message.error_code).name} {message.member_id}".rstrip()
            case SyncGroupResponse(error_code=0):
                return f"assigned [{bytes(message.assignment).decode()}]"
            case LeaveGroupResponse(error_code=0):
                return " ".join(ErrorCode(member.error_code).name for member in message.members)
            case HeartbeatResponse() | SyncGroupResponse() | LeaveGroupResponse():
                return ErrorCode(message.error_code).name
            case _:
                raise AssertionError(message)

    # The commands.

    def do_join(
        self,
        name: str,
        *flags: str,
        protocols: str = "range:t",
        type: str = "consumer",
        instance: str | None = None,
        version: str = "9",
        session: str = "10000",
        rebalance: str = "60000",
    ) -> list[str]:
        """`new` discards the member id. protocols=range:what,rr:what, in order of preference."""
        if "new" in flags:
            self.ids.pop(name, None)
            self.instances.pop(name, None)
        if instance is not None:
            self.instances[name] = instance
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=int(session),
            rebalance_timeout_ms=int(rebalance),
            member_id=self.ids.get(name, ""),
            group_instance_id=self.instances.get(name),
            protocol_type=type,
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=text.encode())
                for each, _, text in (part.partition(":") for part in protocols.split(",") if part)
            ],
        )
        client = Client(client_id=name, host="/127.0.0.1", api_version=int(version))
        self.driver.ask(
            name, lambda shard, ticket, now: shard.classic.join(request, client, ticket, now)
        )
        return self.responses()

    def do_sync(
        self, name: str, *assigned: str, protocol: str | None = None, **by: str
    ) -> list[str]:
        """`sync a a=t0 b=t1`: the leader's assignment for each client."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generations.get(name, -1),
            member_id=self.ids.get(name, ""),
            group_instance_id=self.instances.get(name),
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=self.ids[each], assignment=what.encode())
                for each, what in by.items()
            ],
        )
        self.driver.ask(name, lambda shard, ticket, now: shard.classic.sync(request, ticket, now))
        return self.responses()

    def do_heartbeat(self, name: str, generation: str | None = None) -> list[str]:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generations.get(name, -1) if generation is None else int(generation),
            member_id=self.ids.get(name, ""),
            group_instance_id=self.instances.get(name),
        )
        self.driver.ask(
            name, lambda shard, ticket, now: shard.classic.heartbeat(request, ticket, now)
        )
        return self.responses()

    def do_leave(self, *names: str, instance: str | None = None) -> list[str]:
        """Several in one request; `leave instance=x` is an administrator."""
        members = [
            MemberIdentity(member_id=self.ids[name], group_instance_id=self.instances.get(name))
            for name in names
        ]
        if instance is not None:
            members.append(MemberIdentity(member_id="", group_instance_id=instance))
        request = LeaveGroupRequest(group_id="g", members=members)
        self.driver.ask(
            "leave", lambda shard, ticket, now: shard.classic.leave(request, ticket, now)
        )
        return self.responses()

    def do_commit(self, *words: str, generation: str | None = None) -> list[str]:
        """Whether the group would accept a commit of the client; `transactional` as in a
        transaction."""
        name = next((word for word in words if word != "transactional"), "")
        group = self.driver.shard.groups["g"]
        try:
            group.check_commit(
                member_id=self.ids.get(name, ""),
                instance_id=self.instances.get(name),
                epoch=self.generations.get(name, -1) if generation is None else int(generation),
                transactional="transactional" in words,
                api_version=9,
            )
        except Rejected as refusal:
            return [f"{refusal.code.name}: {refusal}"]
        return ["may commit"]

    def do_delete(self) -> list[str]:
        group = self.driver.shard.groups["g"]
        try:
            group.check_delete()
        except Rejected as refusal:
            return [f"{refusal.code.name}: {refusal}"]
        self.driver.written = []
        self.driver.replies = []
        for record in group.tombstones():
            self.driver.shard.replay(record, offset=Offset(0))
        return ["deleted"]

    def do_fence(self) -> list[str]:
        group = self.driver.shard.groups["g"]
        self.driver.ask("", lambda shard, ticket, now: group.fence_all(now))
        return self.responses()

    def do_pass(self, ms: str) -> list[str]:
        self.driver.pass_ms(int(ms))
        return self.responses()

    def do_failover(self) -> list[str]:
        self.driver.fail_over()
        return self.responses()

    def do_fail(self, code: str) -> list[str]:
        """The next append fails."""
        self.driver.failure = ErrorCode[code]
        return []

    def do_set(self, **settings: str) -> list[str]:
        self.driver.set(**settings)
        return []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = Scenario()
    actual = ""
    for block in path.read_text().strip().split("\n\n"):
        command, _, _ = block.partition("\n----")
        lines = command.split("\n")
        output = "\n".join(scenario.execute(line) for line in lines if not line.startswith("#"))
        actual += f"{command}\n----\n{output}\n\n"
    actual = actual.rstrip("\n") + "\n"
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(actual)
    assert actual == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 10
