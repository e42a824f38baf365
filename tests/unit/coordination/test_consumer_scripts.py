"""Runs the scenarios in tests/scripts/consumer_groups; REWRITE_SCRIPTS=1 writes their output anew.

`join a t,u` is a consumer "a" of the topics t and u; `beat a` reports what it has; `reconcile a`
lets it give up what it was told to. Assignments read t:0,1.
"""

import os
from pathlib import Path

import pytest

from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import Owned
from lograft.coordination.types import CoordinatorResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.unit.coordination.consumer_client import Consumer, Partitions, Shard

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "consumer_groups").glob("*.txt"))


class Scenario:
    def __init__(self) -> None:
        self.do_shard()

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        plain = [word for word in words if "=" not in word]
        given = dict(word.split("=", 1) for word in words if "=" in word)
        lines = getattr(self, f"do_{verb}")(*plain, **given)
        return "\n".join([*lines, *self.state()])

    def do_shard(self, **settings: str) -> list[str]:
        """A new coordinator with an empty log. New assignments are computed without a delay."""
        given = {name.replace("_", "."): text for name, text in settings.items()}
        self.shard = Shard({"group.consumer.assignment.interval.ms": "0", **given})
        self.consumers: dict[str, Consumer] = {}
        return []

    def named(self, owned: Owned | Partitions) -> str:
        topics = self.shard.image.topics
        parts = [
            f"{topics[t].name if t in topics else '?'}:{','.join(map(str, sorted(found)))}"
            for t, found in sorted(owned.items())
            if found
        ]
        return " ".join(parts) or "-"

    def state(self) -> list[str]:
        group = self.shard.shard.groups.get("g")
        if group is None:
            return ["(no group)"]
        if not isinstance(group, ConsumerGroup):
            return [f"({group.kind.value} {group.state_name})"]
        lines = [f"({group.state_name} epoch={group.epoch} target={group.target_epoch})"]
        for member_id, member in sorted(group.members.items()):
            revoking = f" revoking {self.named(member.revoking)}" if member.revoking else ""
            kind = "" if member.classic is None else " classic"
            lines.append(
                f"  {member_id}{kind} epoch={member.epoch} {member.state.name.lower()}"
                f" {self.named(member.assigned)}{revoking}"
            )
        return lines

    def responses(self, name: str) -> list[str]:
        lines = []
        for who, answer in self.shard.replies:
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            lines += self.told_to_consumer(who, answer)
        return lines

    def told_to_consumer(self, who: str, answer: ConsumerGroupHeartbeatResponse) -> list[str]:
        if answer.error_code:
            code = ErrorCode(answer.error_code).name
            return [f"{who}: {code} {answer.error_message}"]
        assignment = ""
        if answer.assignment is not None:
            given = {
                partition.topic_id: partition.partitions
                for partition in answer.assignment.topic_partitions
            }
            assignment = f" has {self.named(given)}"
        return [f"{who}: epoch {answer.member_epoch}{assignment}"]

    # The commands.

    def do_topic(self, name: str, partitions: str) -> list[str]:
        self.shard.create_topic(name, int(partitions))
        return []

    def do_delete(self, name: str) -> list[str]:
        self.shard.delete_topic(name)
        return []

    def do_join(
        self,
        name: str,
        topics: str | None = None,
        *,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        rebalance: str = "60000",
        epoch: str = "0",
    ) -> list[str]:
        consumer = self.consumers.setdefault(name, Consumer(self.shard, name))
        consumer.instance_id = instance
        consumer.join(
            None if topics is None else [t for t in topics.split(",") if t],
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            rebalance_timeout_ms=int(rebalance),
        )
        return self.responses(name)

    def do_beat(
        self,
        name: str,
        *flags: str,
        topics: str | None = None,
        regex: str | None = None,
        epoch: str | None = None,
        has: str | None = None,
    ) -> list[str]:
        """`lost`: the response is lost; `silent`: the request does not contain the owned
        partitions."""
        consumer = self.consumers[name]
        fields: dict[str, object] = {}
        if topics is not None:
            fields["subscribed_topic_names"] = [t for t in topics.split(",") if t]
        if regex is not None:
            fields["subscribed_topic_regex"] = regex
        if epoch is not None:
            fields["member_epoch"] = int(epoch)
        if "silent" in flags:
            fields["topic_partitions"] = None
        if has is not None:
            topic, _, partitions = has.partition(":")
            topic_id = self.shard.image.topic_ids[topic]
            consumer.has = {topic_id: [int(each) for each in partitions.split(",")]}
        consumer.beat(lost="lost" in flags, **fields)
        return self.responses(name)

    def do_reconcile(self, name: str) -> list[str]:
        self.consumers[name].reconcile()
        return [f"{name} has {self.named(self.consumers[name].has)}"]

    def do_leave(self, name: str, *flags: str) -> list[str]:
        """`for-now`: a static member that leaves temporarily."""
        self.consumers[name].leave(-2 if "for-now" in flags else -1)
        return self.responses(name)

    def do_commit(self, name: str, epoch: str, partition: str = "0") -> list[str]:
        try:
            check = self.shard.consumers().check_commit(
                member_id=name,
                instance_id=None,
                epoch=int(epoch),
                transactional=False,
                api_version=9,
            )
            if check is not None:
                check("t", int(partition))
        except Rejected as refusal:
            return [f"{refusal.code.name} {refusal}"]
        return ["may commit"]

    def do_pass(self, ms: str) -> list[str]:
        self.shard.pass_ms(int(ms))
        return []

    def do_failover(self) -> list[str]:
        before = self.state()
        self.shard.fail_over()
        assert self.state() == before, "the log says all"
        return []

    def do_fail(self, code: str) -> list[str]:
        self.shard.failure = ErrorCode[code]
        return []

    def do_fence(self) -> list[str]:
        group = self.shard.consumers()
        self.shard.ask("", lambda shard, ticket, now_ms: group.fence_all(now_ms))
        return []

    def do_group(self, **settings: str) -> list[str]:
        for name, value in settings.items():
            self.shard.set_group("g", name.replace("_", "."), value)
        return []

    def do_remove(self) -> list[str]:
        group = self.shard.consumers()
        group.check_delete()
        self.shard.ask(
            "", lambda shard, ticket, now_ms: CoordinatorResult(records=group.tombstones())
        )
        return []


def run_script(path: Path, scenario: Scenario) -> None:
    actual = ""
    for block in path.read_text().strip().split("\n\n"):
        command, _, _ = block.partition("\n----")
        lines = command.split("\n")
        output = "\n".join(
            f"> {line}\n{scenario.execute(line)}" for line in lines if not line.startswith("#")
        )
        actual += f"{command}\n----\n{output}\n\n"
    actual = actual.rstrip("\n") + "\n"
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(actual)
    assert actual == path.read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    run_script(path, Scenario())


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 8
