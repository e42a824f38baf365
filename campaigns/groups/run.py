"""Runs a cluster with groups, transactions, administrators and faults, from a seed.

Like `cluster_run.py`, with other clients. After all faults are cleared, the groups must become
stable: every partition has one owner (G4), and everything that was acknowledged is processed (L2).
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from campaigns.cluster_admin import ClusterAdmin
from campaigns.cluster_checks import check_cluster
from campaigns.cluster_producer import PipelinedProducer
from campaigns.cluster_run import ClusterReport, ClusterRun
from campaigns.groups import onlooker
from campaigns.groups.actors import Behaviour, Cast
from campaigns.groups.checks import GROUP_CHECKERS
from campaigns.groups.late import LateClient, LateRequests
from campaigns.groups.membership import (
    ActorContext,
    Requester,
    TurnOver,
    fetch_offset,
)
from campaigns.groups.plan import ActorPlan, GroupsOptions, draw_options
from campaigns.groups.reading import GroupConsumer
from campaigns.groups.transacting import Copier, Transfer
from campaigns.groups.transaction_checks import TRANSACTION_CHECKERS
from campaigns.groups.watch import GroupWatch
from lograft.model.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lograft.simulation.checkers import Violation
from lograft.simulation.client import NotSent
from lograft.simulation.machine import Life, Machine
from lograft.simulation.node_workload import (
    FETCH_VERSIONS,
    Consumer,
    Reader,
    TopicPlan,
    read_partition,
)
from lograft.simulation.routing import ClusterClient

INPUT: Final = "in"
#: Output topic of copiers, and topic of transfers.
OUTPUT: Final = "out"
ACCOUNTS: Final = "accounts"
PARTITIONS: Final = 2


@dataclass(slots=True)
class GroupsReport(ClusterReport):
    options: GroupsOptions
    commits: int = 0
    #: Number of assignments that changed a member's partitions.
    assignments: int = 0
    late_requests: int = 0
    #: Number of acknowledged commits of transactions.
    transactions: int = 0


class GroupsRun(ClusterRun):
    options: GroupsOptions
    report: GroupsReport

    def __init__(self, seed: int, options: GroupsOptions | None = None) -> None:
        super().__init__(seed, options or draw_options(seed))
        self.report = GroupsReport(seed, self.options)
        self._watch = GroupWatch(self, self.history, self.report_violation)
        self._late = LateRequests(
            self.client("late"),
            self.client_hosts["late"],
            history=self.history,
            random=self.loop.streams.stream("late"),
            permille=self.options.late_permille,
        )
        self.cast = Cast(self, self.options.actors, self._make_behaviour)
        self._lives = 0

    def plan_topics(self, brokers: int) -> list[TopicPlan]:
        configs = {"min.insync.replicas": "2", "replication.mode": self.options.modes[0]}
        if self.options.durable:
            configs["flush.messages"] = "1"
        others = {**configs, "replication.mode": self.options.modes[1]}
        roles = {plan.role for plan in self.options.actors}
        topics = [TopicPlan(INPUT, PARTITIONS, configs, 3)]
        if "copier" in roles:
            topics.append(TopicPlan(OUTPUT, PARTITIONS, others, 3))
        if "transfer" in roles:
            topics.append(TopicPlan(ACCOUNTS, PARTITIONS, others, 3))
        return topics

    def administered_topics(self) -> list[TopicPlan]:
        """Includes the topics of the coordinators."""
        internal = [OFFSETS_TOPIC]
        if len(self.topics) > 1:
            internal.append(TRANSACTIONS_TOPIC)
        return [*self.topics, *(TopicPlan(name, PARTITIONS, {}, 3) for name in internal)]

    def inspect(self, nodes: list[int]) -> None:
        super().inspect(nodes)
        self._watch.inspect(nodes)

    def check(self) -> list[Violation]:
        checkers = (*TRANSACTION_CHECKERS, *GROUP_CHECKERS)
        found = [each for checker in checkers for each in checker(self.history)]
        return [*found, *check_cluster(self.history)]

    def execute(self) -> GroupsReport:
        super().execute()
        report, operations = (
            self.report,
            self.history.operations("commit", "sync", "beat", "txn_end"),
        )
        report.commits = sum(each.f == "commit" and each.type == "ok" for each in operations)
        report.assignments = sum(
            each.type == "ok"
            and each.result.get("assigned") is not None
            and each.result["assigned"] != each.arguments.get("owns")
            for each in operations
        )
        report.transactions = sum(
            each.f == "txn_end" and each.type == "ok" and each.arguments["commit"]
            for each in operations
        )
        report.late_requests = self._late.count
        return report

    # -- the world of the actors -------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        found = self.client_hosts.get(name)
        if found is None:
            found = self.client_hosts[name] = Machine(self.loop, self.network, name)
        return found

    def make_context(self, proc: str, machine: Machine) -> ActorContext:
        life = machine.life
        assert life is not None, machine.host
        self._lives += 1
        client = LateClient(
            life.runtime.transport,
            self.bootstrap(),
            client_id=f"a{self._lives}",
            random=self.loop.streams.stream("clients"),
            late=self._late,
            has_ended=lambda: machine.life is not life,
        )
        topics = {topic.name: topic for topic in self.topics}
        return ActorContext(proc, client, self.history, self.random, topics)

    def isolate_client(self, name: str) -> None:
        for node_id in self.hosts:
            self.network.cut(f"n{node_id}", name)
            self.network.cut(name, f"n{node_id}")

    def reconnect_client(self, name: str) -> None:
        for node_id in self.hosts:
            self.network.restore_link(f"n{node_id}", name)
            self.network.restore_link(name, f"n{node_id}")

    def later(self, ms: int, act: Callable[[], None]) -> None:
        self.loop.call_later_ns(ms * 1_000_000, act, context=self.network.kernel)

    def _make_behaviour(self, context: ActorContext, plan: ActorPlan) -> Behaviour:
        match plan.role:
            case "copier":
                subscribed = self._topics_of(plan)
                return Copier(context, plan, subscribed, OUTPUT, self._late.learn)
            case "transfer":
                return Transfer(context, plan, ACCOUNTS, self._late.learn)
            case _:
                return GroupConsumer(context, plan, self._topics_of(plan))

    def _topics_of(self, plan: ActorPlan) -> list[str]:
        """Returns the topics of a plan; members of consumer groups also read the copies."""
        has_copies = any(topic.name == OUTPUT for topic in self.topics)
        if plan.role == "member" and plan.protocol == "consumer" and has_copies:
            return [INPUT, OUTPUT]
        return [INPUT]

    # -- clients -----------------------------------------------------------------------------------

    def start_clients(self, life: Life, admin: ClusterAdmin) -> None:
        def start(work: Coroutine[Any, Any, None], name: str) -> None:
            life.run(work, name=name)

        topic = self.topics[0]
        machine = self.client_hosts["client"]
        for partition in range(topic.partitions):
            name = f"p{partition + 1}"
            context = self.make_context(name, machine)
            producer = PipelinedProducer(
                name,
                context.cluster.partition(topic.name, partition),
                topic,
                partition,
                history=self.history,
                random=self.random,
                start=start,
                acks=-1,
                idempotent=True,
                pace_ms=self.options.pace_ms,
            )
            start(producer.run(), name)
        for topic in self.topics:
            for partition in range(topic.partitions):
                self._start_reader(topic, partition, start)
        start(admin.follow(self.options.steps), "admin")
        self._start_observers(start)
        self.cast.start()
        self.loop.create_task(self.cast.follow(self.options.events), name="events")

    def _start_observers(self, start: Callable[[Coroutine[Any, Any, None], str], None]) -> None:
        machine, groups = self.client_hosts["client"], self._groups()
        places = [(INPUT, index) for index in range(PARTITIONS)]
        if groups:
            context = self.make_context("onlooker", machine)
            start(onlooker.observe_offsets(context, groups, places), "onlooker")
        if self.options.resets:
            context = self.make_context("reset", machine)
            start(onlooker.reset(context, self.options.resets, places), "reset")

    def _groups(self) -> list[ActorPlan]:
        """Returns the plan of one member for each group."""
        groups: dict[str, ActorPlan] = {}
        for plan in self.options.actors:
            if plan.group:
                groups.setdefault(plan.group, plan)
        return list(groups.values())

    def _start_reader(
        self,
        topic: TopicPlan,
        partition: int,
        start: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        """Starts a read_committed consumer, and for the first partition also a read_uncommitted
        one."""
        for isolation_level in (1, 0) if partition == 0 else (1,):
            name = f"r{isolation_level}-{topic.name}-{partition}"
            reader = Consumer(
                name,
                self.client("client").partition(topic.name, partition),
                topic,
                partition,
                history=self.history,
                random=self.random,
                isolation_level=isolation_level,
            )
            reader.pauses = (0.1, 0.5)
            start(reader.run(), name)

    # -- the end -----------------------------------------------------------------------------------

    async def settle(self, client: ClusterClient) -> None:
        self._late.permille = 0
        self.cast.gather()
        topics = {topic.name: topic for topic in self.topics}
        context = ActorContext("settle", client, self.history, self.random, topics)
        deadline_ns = self.deadline_ns()
        groups = self._groups()
        # Copiers first, because others read the copies.
        for plan in sorted(groups, key=lambda each: each.role != "copier"):
            await self.retry_until(deadline_ns, self._catch_up, context, plan, invariant="L2")
            await self.retry_until(deadline_ns, self._converge, plan, invariant="G4")
        self.cast.dismiss()
        self.client_hosts["late"].kill()
        for plan in groups:
            await self.retry_until(
                self.deadline_ns(), self._last_offsets, context, plan, invariant="G6"
            )
        deadline_ns = self.deadline_ns()
        for topic in self.topics:
            for partition in range(topic.partitions):
                await self.retry_until(
                    deadline_ns, self._read_committed, client, topic, partition, invariant="T6"
                )

    async def _catch_up(self, context: ActorContext, plan: ActorPlan) -> None:
        """L2: the group has committed all acknowledged records."""
        goals: dict[tuple[str, int], int] = {
            (name, index): 0
            for name in self._topics_of(plan)
            for index in range(context.topics[name].partitions)
        }
        for send in self.history.operations("send"):
            topic, _, index = send.arguments["tp"].rpartition("-")
            if send.type == "ok" and (topic, int(index)) in goals:
                place = (topic, int(index))
                goals[place] = max(goals[place], send.result["offset"] + 1)
        requester = Requester(context, plan)
        for place, goal in goals.items():
            try:
                offset = await fetch_offset(requester, place)
            except TurnOver:
                raise NotSent(f"{plan.group}: offsets could not be fetched") from None
            if offset < goal:
                raise NotSent(f"{plan.group} is at {offset} of {goal} in {place}")

    async def _converge(self, plan: ActorPlan) -> None:
        """G4: every partition has one owner."""
        owned = sorted(
            place
            for actor in self.cast.all_actors()
            if actor.is_alive and actor.plan.group == plan.group and actor.membership is not None
            for place in actor.membership.assigned
        )
        expected = sorted(
            (topic.name, index)
            for topic in self.topics
            if topic.name in self._topics_of(plan)
            for index in range(topic.partitions)
        )
        if owned != expected:
            raise NotSent(f"{plan.group}: owned partitions are {owned}, not {expected}")

    async def _last_offsets(self, context: ActorContext, plan: ActorPlan) -> None:
        requester = Requester(context, plan)
        offsets = []
        try:
            for name in self._topics_of(plan):
                for index in range(context.topics[name].partitions):
                    offset = await fetch_offset(requester, (name, index))
                    offsets.append((f"{name}-{index}", offset))
        except TurnOver:
            raise NotSent(f"{plan.group}: offsets could not be fetched") from None
        self.history.record(
            "settle", "probe", "settled", group=plan.group, offsets=offsets,
            copies=plan.role == "copier",
        )  # fmt: skip

    async def _read_committed(
        self, client: ClusterClient, topic: TopicPlan, partition: int
    ) -> None:
        """T6: no transaction stays open after the death of its producer."""
        route = client.partition(topic.name, partition)
        reader = Reader(route, topic, partition, max(FETCH_VERSIONS))
        await read_partition(
            reader, history=self.history, report_violation=self.report_violation, isolation_level=1
        )


def run_groups(seed: int, options: GroupsOptions | None = None) -> GroupsReport:
    return GroupsRun(seed, options).execute()
