"""Runs the scenarios in tests/scripts/replication; REWRITE_SCRIPTS=1 rewrites their output."""

import os
from pathlib import Path

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import NO_EPOCH, BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.errors import TruncatesCommitted
from lograft.replication.isr_follower import IsrFollower
from lograft.replication.isr_leader import IsrLeader
from lograft.replication.replica import IsrReplica
from lograft.replication.types import (
    AcceptedIsr,
    Assignment,
    Effects,
    EpochEnd,
    FollowerEffects,
    FollowerFetch,
    IsrProposal,
    LeaderResponse,
    ReplicationSettings,
)
from tests.unit.replication.list_log import Entry, ListLog

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "replication").glob("*.txt"))


class ScriptedBrokers:
    """Broker n is registered with epoch n, unless a script specifies another one."""

    def __init__(self) -> None:
        self.epochs: dict[NodeId, BrokerEpoch] = {}
        self.fenced: set[NodeId] = set()

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        return self.epochs.get(node_id, BrokerEpoch(node_id))

    def can_join_isr(self, node_id: NodeId) -> bool:
        return node_id not in self.fenced


class Scenario:
    """One replica; each command is an event, and its output the requested effects."""

    def __init__(self) -> None:
        self.brokers = ScriptedBrokers()
        self.log = ListLog()
        self.now_ms = 0
        self.settings = ReplicationSettings()
        self.proposal: IsrProposal | None = None
        self.asked: FollowerFetch | None = None
        self.replica = self.open(1, Offset(0))

    @property
    def leader(self) -> IsrLeader:
        assert self.replica.leader is not None
        return self.replica.leader

    @property
    def follower(self) -> IsrFollower:
        assert self.replica.follower is not None
        return self.replica.follower

    def open(self, me: int, high_watermark: Offset) -> IsrReplica:
        return IsrReplica(
            NodeId(me),
            broker_epoch=BrokerEpoch(me),
            log=self.log,
            high_watermark=high_watermark,
            brokers=self.brokers,
            settings=self.settings,
        )

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        plain = [word for word in words if "=" not in word]
        given = dict(word.split("=") for word in words if "=" in word)
        if "at" in given:
            self.now_ms = int(given.pop("at"))
        lines = getattr(self, f"do_{verb}")(*plain, **given)
        return "\n".join([*lines, self.state()])

    def state(self) -> str:
        replica = self.replica
        log = self.log
        ends = f"log={log.log_start_offset}..{log.end_offset} hw={replica.high_watermark}"
        if replica.leader is not None:
            isr = replica.leader.isr
            maximal = sorted(isr.maximal)
            pending = "-" if isr.pending is None else isr.pending.kind.value
            return (
                f"leader epoch={replica.leader.leader_epoch} {ends} isr={sorted(isr.committed)}"
                f" maximal={maximal} pending={pending} partition_epoch={isr.partition_epoch}"
            )
        if replica.follower is not None:
            follower = replica.follower
            return f"{follower.state.value} {ends} leader={follower.leader}"
        return f"rests {ends}"

    # Both roles.

    def do_replica(
        self, me: str = "1", log: str = "", hw: str = "0", start: str = "0", **settings: str
    ) -> list[str]:
        """log=0:3,2:5 holds records of epoch 0 up to offset 3 and of epoch 2 up to offset 5."""
        self.brokers = ScriptedBrokers()
        self.log = ListLog()
        self.now_ms = 0
        self.log.restart_at(int(start))
        for part in filter(None, log.split(",")):
            epoch, end = map(int, part.split(":"))
            while self.log.end_offset < end:
                self.log.append(self.log.end_offset, [Entry(epoch, 0)])
        self.log.flush()
        self.settings = ReplicationSettings(
            min_insync_replicas=int(settings.get("min", "1")),
            durable_only=settings.get("durable") == "yes",
            unclean_elections=settings.get("unclean") == "yes",
        )
        self.replica = self.open(int(me), Offset(int(hw)))
        return []

    def do_metadata(
        self,
        replicas: str = "1,2,3",
        isr: str = "1,2,3",
        leader: str = "1",
        epoch: str = "0",
        partition_epoch: str = "0",
        recovering: str = "no",
    ) -> list[str]:
        assignment = Assignment(
            tuple(NodeId(int(node)) for node in replicas.split(",")),
            tuple(NodeId(int(node)) for node in isr.split(",") if node),
            NodeId(int(leader)),
            Epoch(int(epoch)),
            int(partition_epoch),
            recovering == "yes",
        )
        change, effects = self.replica.on_assignment(assignment, now_ms=self.now_ms)
        if self.replica.leader is not None and change.value == "leads":
            self.log.assign_epoch(assignment.leader_epoch)
        return [change.value, *self.describe(effects)]

    def do_broker(self, node: str, epoch: str = "", fenced: str = "no") -> list[str]:
        if epoch:
            self.brokers.epochs[NodeId(int(node))] = BrokerEpoch(int(epoch))
        if fenced == "yes":
            self.brokers.fenced.add(NodeId(int(node)))
        else:
            self.brokers.fenced.discard(NodeId(int(node)))
        return []

    def do_min_insync(self, count: str) -> list[str]:
        settings = self.replica.settings._replace(min_insync_replicas=int(count))
        return self.describe(self.replica.on_settings(settings))

    # The leader.

    def do_append(self, count: str) -> list[str]:
        code = self.leader.check_append(acks_all=True)
        if code is not ErrorCode.NONE:
            return [code.name]
        entries = [Entry(self.leader.leader_epoch, 0)] * int(count)
        self.log.append(self.log.end_offset, entries)
        moved = self.leader.on_appended(self.log.end_offset)
        return [f"high watermark {self.leader.high_watermark}"] if moved else []

    def do_flush(self) -> list[str]:
        self.log.flush()
        if self.replica.leader is None:
            return []
        moved = self.leader.on_durable(self.log.durable_offset)
        return [f"high watermark {self.leader.high_watermark}"] if moved else []

    def do_fetch(
        self,
        node: str,
        offset: str = "0",
        last: str = "-1",
        epoch: str = "",
        start: str = "0",
        broker: str = "",
    ) -> list[str]:
        fetch = FollowerFetch(
            NodeId(int(node)),
            BrokerEpoch(int(broker or node)),
            Epoch(int(epoch)) if epoch else self.leader.leader_epoch,
            Offset(int(offset)),
            Epoch(int(last)),
            Offset(int(start)),
        )
        verdict = self.leader.on_follower_fetch(
            fetch,
            log_start=self.log.log_start_offset,
            epoch_end=EpochEnd(*self.log.epoch_end(fetch.last_fetched_epoch)),
            now_ms=self.now_ms,
        )
        lines = [] if verdict.error is ErrorCode.NONE else [verdict.error.name]
        if verdict.diverging is not None:
            lines.append(f"diverging {verdict.diverging.epoch} ends {verdict.diverging.end_offset}")
        return lines + self.describe(verdict.effects)

    def do_tick(self) -> list[str]:
        return self.describe(self.leader.tick(self.now_ms))

    def do_granted(self, isr: str, partition_epoch: str, epoch: str = "") -> list[str]:
        assert self.proposal is not None
        granted = AcceptedIsr(
            Epoch(int(epoch)) if epoch else self.leader.leader_epoch,
            int(partition_epoch),
            tuple(NodeId(int(node)) for node in isr.split(",")),
            recovering=False,
        )
        return self.describe(self.leader.on_accepted(self.proposal, granted, now_ms=self.now_ms))

    def do_refused(self, code: str) -> list[str]:
        assert self.proposal is not None
        return self.describe(self.leader.on_rejected(self.proposal, ErrorCode[code]))

    def do_ack(self, end: str) -> list[str]:
        code = self.leader.ack_of(Offset(int(end)))
        return ["waits" if code is None else code.name]

    def do_latest(self) -> list[str]:
        known = self.leader.can_report_latest
        return [str(self.leader.high_watermark) if known else "OFFSET_NOT_AVAILABLE"]

    def do_delete(self, to: str) -> list[str]:
        self.log.advance_start(int(to))
        return self.do_low_watermark()

    def do_low_watermark(self) -> list[str]:
        return [f"low watermark {self.leader.low_watermark(self.log.log_start_offset)}"]

    def do_describe(self) -> list[str]:
        return [
            f"{s.node_id} {s.log_start_offset}..{s.end_offset} lag={s.lag}"
            f" {'in sync' if s.in_sync else 'out of sync'} fetched={s.last_fetch_ms}"
            f" caught_up={s.last_caught_up_ms}"
            for s in self.leader.statuses(self.log.log_start_offset)
        ]

    def describe(self, effects: Effects) -> list[str]:
        lines = []
        if effects.high_watermark is not None:
            lines.append(f"high watermark {effects.high_watermark} acks={effects.acks.name}")
        if effects.propose is not None:
            self.proposal = effects.propose
            members = " ".join(f"{m.node_id}@{m.broker_epoch}" for m in effects.propose.isr)
            lines.append(
                f"propose [{members}] epoch={effects.propose.leader_epoch}"
                f" partition_epoch={effects.propose.partition_epoch}"
            )
        if effects.log_start_moved:
            lines.append("log start moved")
        return lines

    # The follower.

    def do_ask(self) -> list[str]:
        fetch = self.follower.next_fetch(self.now_ms)
        if fetch is None:
            return ["nothing to ask"]
        self.asked = fetch
        last = "-" if fetch.last_fetched_epoch == NO_EPOCH else fetch.last_fetched_epoch
        return [f"fetch offset={fetch.offset} last_epoch={last} epoch={fetch.leader_epoch}"]

    def do_answer(
        self,
        error: str = "NONE",
        hw: str = "-1",
        start: str = "0",
        records: str = "",
        diverging: str = "",
    ) -> list[str]:
        assert self.asked is not None
        end = None
        if diverging:
            epoch, offset = map(int, diverging.split(":"))
            end = EpochEnd(Epoch(epoch), Offset(offset))
        answer = LeaderResponse(
            ErrorCode[error], Offset(int(hw)), Offset(int(start)), end, bool(records)
        )
        try:
            effects = self.follower.on_response(self.asked, answer, now_ms=self.now_ms)
        except TruncatesCommitted as failure:
            return [f"TruncatesCommitted: {failure}"]
        if effects.append:
            epoch, count = map(int, records.split("x"))
            self.log.append(self.log.end_offset, [Entry(epoch, 0)] * count)
            return [f"appended {count}", *self.act(self.follower.on_appended())]
        return self.act(effects)

    def do_unanswered(self) -> list[str]:
        assert self.asked is not None
        self.follower.on_request_failed(self.asked, now_ms=self.now_ms)
        return []

    def do_bounds(self, start: str, end: str) -> list[str]:
        return self.act(
            self.follower.on_leader_bounds(
                ErrorCode.NONE,
                log_start=Offset(int(start)),
                end=Offset(int(end)),
                now_ms=self.now_ms,
            )
        )

    def act(self, effects: FollowerEffects) -> list[str]:
        lines = []
        if effects.fetch_bounds:
            lines.append("ask the leader for its bounds")
        if effects.high_watermark is not None:
            lines.append(f"high watermark {effects.high_watermark}")
        if effects.advance_log_start is not None:
            self.log.advance_start(effects.advance_log_start)
            lines.append(f"log start {effects.advance_log_start}")
        if effects.truncate_to is not None:
            lost = f", {effects.lost_records} committed lost" if effects.lost_records else ""
            lines.append(f"cut to {effects.truncate_to}{lost}")
            self.log.truncate(effects.truncate_to)
            lines += self.act(self.follower.on_log_truncated())
        if effects.restart_at is not None:
            lines.append(f"restart at {effects.restart_at}")
            self.log.restart_at(effects.restart_at)
            lines += self.act(self.follower.on_log_truncated())
        return lines


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
