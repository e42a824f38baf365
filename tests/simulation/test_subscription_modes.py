"""Tests of subscription.mode=ptp on three nodes: only one group can read the topic, even if several
groups join at once on different coordinators."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import pytest

from lograft.broker.coordinators.coordinator_runtime import key_hash
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import OFFSETS_TOPIC
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.routing import ClusterClient
from lograft.testing import VirtualCluster
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.join_group import JoinGroupResponse
from lograft.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.scenarios import run_in_virtual_cluster, scenario
from tests.unit.api.groups_bench import join_request

R = TypeVar("R", bound=Message)
TOPIC = "t"
PARTITIONS = 4
PROPERTIES = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
}
TIMEOUT_MS = 20_000
TRANSIENT = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
}


class Group:
    """A member of a group. Retries until its coordinator accepts or rejects the request."""

    def __init__(self, client: ClusterClient, group_id: str) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.index = key_hash(group_id) % PARTITIONS
        self._route = client.partition(OFFSETS_TOPIC, self.index)

    async def join(self) -> ErrorCode:
        """Joins with the classic protocol."""
        while True:
            request = join_request(group=self.group_id, member_id=self.member_id, topics=(TOPIC,))
            response = await self._request(request, 9, JoinGroupResponse)
            code = ErrorCode(response.error_code)
            if code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
                self.member_id = response.member_id
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif code is not ErrorCode.MEMBER_ID_REQUIRED and code not in TRANSIENT:
                return code

    async def heartbeat(self, *, epoch: int = 0) -> ErrorCode:
        """Sends a heartbeat of the consumer protocol; epoch 0 joins. Later heartbeats contain only
        changes."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=f"{self.group_id}-1",
            member_epoch=epoch,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=None if epoch else [TOPIC],
            topic_partitions=None if epoch else [],
        )
        while True:
            response = await self._request(request, 1, ConsumerGroupHeartbeatResponse)
            if response.error_code not in TRANSIENT:
                return ErrorCode(response.error_code)

    async def leave(self) -> None:
        members = [MemberIdentity(member_id=self.member_id)]
        request = LeaveGroupRequest(group_id=self.group_id, members=members)
        response = await self._request(request, 5, LeaveGroupResponse)
        assert (response.error_code, response.members[0].error_code) == (0, 0)
        self.member_id = ""

    async def commit(self, *topics: str) -> list[ErrorCode]:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in topics],
        )
        while True:
            response = await self._request(request, 9, OffsetCommitResponse)
            codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
            if not TRANSIENT.intersection(codes.values()):
                return [ErrorCode(codes[topic]) for topic in topics]

    async def delete(self) -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=[self.group_id])
        return ErrorCode(
            (await self._request(request, 2, DeleteGroupsResponse)).results[0].error_code
        )

    async def _request(self, request: Message, version: int, response_type: type[R]) -> R:
        while True:
            try:
                response = await self._route.request(
                    request, version, response_type, timeout_ms=TIMEOUT_MS
                )
                if getattr(response, "error_code", 0) not in TRANSIENT:
                    return response
            except (NotSent, OutcomeUnknown):
                pass
            self._route.mark_stale()
            await asyncio.sleep(0.05)


async def groups_of(cluster: VirtualCluster, count: int = 2, *, mode: str = "ptp") -> list[Group]:
    """Creates the topic and groups whose coordinators are on different nodes."""
    configs = {"subscription.mode": mode}
    client = cluster.test_client()
    await client.create_topic(TOPIC, partitions=2, replication_factor=3, configs=configs)
    await client.create_topic("free", partitions=1, replication_factor=3)
    return await groups_without_topic(cluster, count)


async def groups_without_topic(cluster: VirtualCluster, count: int = 2) -> list[Group]:
    client = cluster.test_client()
    await client.retry(lambda: _find_coordinator(client.cluster))
    by_leader: dict[int, Group] = {}
    for number in range(100):
        group = Group(cluster.client(f"client-{number}"), f"g{number}")
        by_leader.setdefault(cluster.leader_of(OFFSETS_TOPIC, group.index), group)
    assert len(by_leader) >= count, "every node leads a partition of the offsets topic"
    return list(by_leader.values())[:count]


async def _find_coordinator(client: ClusterClient) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    found = await client.request(request, 4, FindCoordinatorResponse, timeout_ms=TIMEOUT_MS)
    if found.coordinators[0].error_code:
        raise NotSent("the topic is being created")


async def alter(
    cluster: VirtualCluster, *, through: int = 1, **values: str | None
) -> AlterConfigsResourceResponse:
    configs = [
        AlterableConfig(
            name=f"subscription.{name}", config_operation=0 if value else 1, value=value
        )
        for name, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = await cluster.client("admin").request_to(
        Address(f"n{through}", 9092),
        request,
        1,
        IncrementalAlterConfigsResponse,
        timeout_ms=TIMEOUT_MS,
    )
    (result,) = response.responses
    return result


def check_one_admitted(
    cluster: VirtualCluster, groups: Sequence[Group], codes: list[ErrorCode]
) -> Group:
    assert sorted(codes) == [ErrorCode.NONE, *[ErrorCode.POLICY_VIOLATION] * (len(codes) - 1)]
    winner = groups[codes.index(ErrorCode.NONE)]
    assert cluster.image.claims == {TOPIC: winner.group_id}
    return winner


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@scenario(run_in_virtual_cluster, nodes=3, properties=PROPERTIES)
async def test_one_of_several_groups_that_join_at_once_is_admitted(
    cluster: VirtualCluster, /, protocol: str, seed: int
) -> None:
    groups = await groups_of(cluster, 3)
    joins = [group.join() if protocol == "classic" else group.heartbeat() for group in groups]
    codes = await asyncio.gather(*joins)
    winner = check_one_admitted(cluster, groups, codes)
    for group in groups:
        expected = ErrorCode.NONE if group is winner else ErrorCode.POLICY_VIOLATION
        assert await group.commit(TOPIC, "free") in (
            [expected, ErrorCode.NONE],
            [ErrorCode.UNKNOWN_MEMBER_ID] * 2,  # the winner has members, so only they may commit
        )


@pytest.mark.parametrize("seed", range(6))
@scenario(run_in_virtual_cluster, nodes=3, properties=PROPERTIES)
async def test_one_group_is_admitted_while_the_controller_dies(
    cluster: VirtualCluster, /, seed: int
) -> None:
    controller = cluster.controller_id
    groups = [
        group
        for group in await groups_of(cluster, 3)
        # A member that loses its coordinator right after it joined is no longer a member.
        if cluster.leader_of(OFFSETS_TOPIC, group.index) != controller
    ]
    joins = [asyncio.ensure_future(group.join()) for group in groups]
    await asyncio.sleep(cluster.test_client().cluster.random.uniform(0, 0.02))
    cluster.kill(controller)
    codes = await asyncio.gather(*joins)
    winner = check_one_admitted(cluster, groups, codes)
    await cluster.start(controller)
    repeated = await asyncio.gather(*(group.join() for group in groups))
    assert check_one_admitted(cluster, groups, repeated) is winner


@scenario(run_in_virtual_cluster, nodes=3, seed=1, properties=PROPERTIES)
async def test_unused_claim_is_given_to_the_next_group(cluster: VirtualCluster, /) -> None:
    first, second = await groups_of(cluster)
    assert await first.join() is ErrorCode.NONE
    assert await second.join() is ErrorCode.POLICY_VIOLATION, "the first group has a member"
    await first.leave()
    assert await first.commit(TOPIC) == [ErrorCode.NONE]
    assert await second.join() is ErrorCode.POLICY_VIOLATION, (
        "the first group has a committed offset"
    )
    assert await second.commit(TOPIC, "free") == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert await first.delete() is ErrorCode.NONE
    assert await second.join() is ErrorCode.NONE
    assert await first.join() is ErrorCode.POLICY_VIOLATION
    assert cluster.image.claims == {TOPIC: second.group_id}


@scenario(run_in_virtual_cluster, nodes=3, seed=4, properties=PROPERTIES)
async def test_groups_subscribed_to_a_missing_topic_claim_it_when_it_is_created(
    cluster: VirtualCluster, /
) -> None:
    """Members of the consumer protocol send their topics only when they join."""
    groups = await groups_without_topic(cluster)
    for group in groups:
        assert await group.heartbeat() is ErrorCode.NONE
    await cluster.test_client().create_topic(
        TOPIC, partitions=2, replication_factor=3, configs={"subscription.mode": "ptp"}
    )
    for group in groups:
        while (code := await group.heartbeat(epoch=1)) is ErrorCode.NONE:
            await asyncio.sleep(0.05)
        assert code is ErrorCode.UNKNOWN_MEMBER_ID
    check_one_admitted(
        cluster, groups, await asyncio.gather(*(group.heartbeat() for group in groups))
    )


@scenario(run_in_virtual_cluster, nodes=3, seed=2, properties=PROPERTIES)
async def test_mode_that_conflicts_with_groups_is_rejected(cluster: VirtualCluster, /) -> None:
    first, second = await groups_of(cluster, mode="psb")
    assert await first.join() is ErrorCode.NONE
    assert await second.commit(TOPIC) == [ErrorCode.NONE]
    rejected = await alter(cluster, mode="ptp")
    assert rejected.error_code == ErrorCode.INVALID_CONFIG
    names = " and ".join(f"'{name}'" for name in sorted([first.group_id, second.group_id]))
    assert names in (rejected.error_message or "")
    assert await second.delete() is ErrorCode.NONE
    assert (await alter(cluster, mode="ptp")).error_code == ErrorCode.NONE
    assert cluster.image.claims == {TOPIC: first.group_id}
    assert (await alter(cluster, group=second.group_id)).error_code == ErrorCode.INVALID_CONFIG
    assert await second.join() is ErrorCode.POLICY_VIOLATION
    assert (await alter(cluster, mode=None)).error_code == ErrorCode.NONE
    assert await second.join() is ErrorCode.NONE


def test_mode_is_unchanged_if_groups_cannot_be_checked() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        first, _ = await groups_of(cluster, mode="psb")
        assert await first.commit(TOPIC) == [ErrorCode.NONE]
        isolated = cluster.leader_of(OFFSETS_TOPIC, first.index)
        cluster.isolate(isolated)
        rejected = await alter(cluster, through=1 + isolated % 3, mode="ptp")
        assert rejected.error_code != ErrorCode.NONE
        cluster.heal()
        assert cluster.image.claims == {}

    properties = {**PROPERTIES, "broker.session.timeout.ms": "60000"}
    VirtualCluster(nodes=3, seed=3, properties=properties).play(scenario)
