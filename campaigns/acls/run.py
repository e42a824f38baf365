"""Runs a cluster whose ACLs change while clients of several principals work, from a seed.

Nodes, faults, watches and the final comparison are those of `cluster`. A client learns the leaders
from a client with all permissions, so that it also sends requests that are denied."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from campaigns.acls.members import GroupMember
from campaigns.acls.plan import GROUPS, PRINCIPALS, AclChange, AclOptions, draw_options
from campaigns.acls.watch import AclFigures, AclWatch
from campaigns.cluster_admin import ClusterAdmin
from campaigns.cluster_producer import PipelinedProducer
from campaigns.cluster_run import ClusterReport, ClusterRun
from lograft.model.errors import ErrorCode
from lograft.security.acls import Acl
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.machine import Life
from lograft.simulation.node_workload import (
    LATEST,
    TIMEOUT_MS,
    Admin,
    Consumer,
    Reader,
    TopicPlan,
)
from lograft.simulation.routing import ClusterClient, PartitionRoute
from lograft.wire.messages import create_acls as creating
from lograft.wire.messages import delete_acls as deleting

ACLS_VERSION: Final = 3
#: Attempts to change an ACL before the next change.
ATTEMPTS: Final = 5
FAST_FETCH_VERSIONS: Final = (12, 13, 16)
REFRESH_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 0.05


class AclRun(ClusterRun):
    def __init__(self, seed: int, options: AclOptions | None = None) -> None:
        self.acl_options = options or draw_options(seed)
        super().__init__(seed, self.acl_options)
        allow_if_no_acl = self.acl_options.properties["allow.everyone.if.no.acl.found"] == "true"
        self.acl_watch = AclWatch(self.report_violation, allow_if_no_acl=allow_if_no_acl)
        for host in self.hosts.values():
            host.interpose = self.acl_watch.interpose(host.name)
        #: Of all topics; shared by all clients.
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}

    def start_clients(self, life: Life, admin: ClusterAdmin) -> None:
        life.run(admin.follow(self.options.steps), name="admin")
        life.run(self._follow_leaders(self._informed_client("client")), name="leaders")
        life.run(self._change_acls(self.client("client")), name="acls")
        random = self.random
        for number, host in enumerate(PRINCIPALS):
            self.client_runtime(host)
            machine = self.client_hosts[host].life
            assert machine is not None

            def start(work: Coroutine[Any, Any, None], name: str, life: Life = machine) -> None:
                life.run(work, name=name)

            for topic in self.topics:
                partition = random.randrange(topic.partitions)
                idempotent = random.random() < 0.3
                producer = PipelinedProducer(
                    f"{host}{topic.name}",
                    self._route(host, topic.name, partition),
                    topic,
                    partition,
                    history=self.history,
                    random=random,
                    start=start,
                    acks=-1 if idempotent else random.choice((-1, 1)),
                    idempotent=idempotent,
                    pace_ms=self.options.pace_ms,
                )
                start(producer.run(), f"{host}-producer-{topic.name}")
                consumer = Consumer(
                    f"{host}-{topic.name}",
                    self._route(host, topic.name, partition),
                    topic,
                    partition,
                    history=self.history,
                    random=random,
                )
                consumer.pauses = (0.01, 0.1)
                start(consumer.run(), f"{host}-consumer-{topic.name}")
                poll = self._poll(self._route(host, topic.name, partition), topic, partition)
                start(poll, f"{host}-poll-{topic.name}")
            start(self._list_offsets(self._route(host, "sync", 0)), f"{host}-lister")
            member = GroupMember(
                self._informed_client(host),
                GROUPS[number % len(GROUPS)],
                [topic.name for topic in self.topics[: random.randint(1, 2)]],
                random,
            )
            start(member.run(), f"{host}-member")
            start(self._describe_topics(self._informed_client(host)), f"{host}-metadata")

    def _informed_client(self, host: str) -> ClusterClient:
        client = self.client(host)
        client.leaders = self._leaders
        return client

    def _route(self, host: str, topic: str, partition: int) -> PartitionRoute:
        return self._informed_client(host).partition(topic, partition)

    async def _follow_leaders(self, client: ClusterClient) -> None:
        while True:
            try:
                await client.refresh()
            except (NotSent, OutcomeUnknown):
                pass
            await asyncio.sleep(REFRESH_SECONDS)

    async def _describe_topics(self, client: ClusterClient) -> None:
        """Requests metadata of all topics and of single ones."""
        names = [None, *(topic.name for topic in self.topics)]
        while True:
            await asyncio.sleep(self.random.uniform(0.02, 0.2))
            try:
                await client.refresh(self.random.choice(names))
            except (NotSent, OutcomeUnknown):
                pass

    async def _poll(self, route: PartitionRoute, topic: TopicPlan, partition: int) -> None:
        """Reads a partition again and again, with fetches that the fast path can serve."""
        reader = Reader(route, topic, partition, self.random.choice(FAST_FETCH_VERSIONS))
        reader.omits_epoch = True
        wait_ms = self.random.choice((0, 100))
        offset = 0
        while True:
            await asyncio.sleep(self.random.choice((0.005, 0.05)))
            try:
                data, records, _ = await reader.fetch(offset, bytes_max=500, wait_ms=wait_ms)
            except (NotSent, OutcomeUnknown):
                continue
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                offset = 0
            elif records:
                offset = records[-1][0] + 1

    async def _list_offsets(self, route: PartitionRoute) -> None:
        lister = Admin(route, history=self.history, random=self.random)
        while True:
            await asyncio.sleep(self.random.uniform(0.02, 0.2))
            try:
                await lister.list_offset(self.topics[0], 0, LATEST)
            except (NotSent, OutcomeUnknown):
                pass

    async def _change_acls(self, client: ClusterClient) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for change in self.acl_options.changes:
            await asyncio.sleep(max(0.0, start + change.at_ms / 1000 - loop.time()))
            for _ in range(ATTEMPTS):
                try:
                    if not await _send_change(client, change):
                        break
                except (NotSent, OutcomeUnknown):
                    pass
                client.mark_stale()
                await asyncio.sleep(RETRY_SECONDS)

    async def settle(self, client: ClusterClient) -> None:
        # Before the final reads.
        for host in PRINCIPALS:
            self.client_hosts[host].kill()


async def _send_change(client: ClusterClient, change: AclChange) -> ErrorCode:
    """Changes the ACL through any broker, which forwards the request to the controller."""
    acl = Acl(*change.acl)
    if change.is_deletion:
        deletion = deleting.DeleteAclsFilter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        deleted = await client.request(
            deleting.DeleteAclsRequest(filters=[deletion]),
            ACLS_VERSION,
            deleting.DeleteAclsResponse,
            timeout_ms=TIMEOUT_MS,
        )
        return ErrorCode(deleted.filter_results[0].error_code)
    creation = creating.AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    created = await client.request(
        creating.CreateAclsRequest(creations=[creation]),
        ACLS_VERSION,
        creating.CreateAclsResponse,
        timeout_ms=TIMEOUT_MS,
    )
    return ErrorCode(created.results[0].error_code)


def run_acls(seed: int, options: AclOptions | None = None) -> tuple[ClusterReport, AclFigures]:
    run = AclRun(seed, options)
    return run.execute(), run.acl_watch.figures
