"""The administrator of a simulated cluster: creates and deletes topics, moves replicas, elects
leaders.

Steps are taken from the plan. A step whose target does not exist (a topic to delete, a broker to
move to) does nothing. Outcomes are recorded, so that the final state can be compared with them."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from campaigns.cluster_plan import AdminStep
from lograft.simulation.client import ErrorResponse, NotSent, OutcomeUnknown
from lograft.simulation.cluster import CONTROLLER_PORT, directory_id_of
from lograft.simulation.history import History
from lograft.simulation.node_workload import TIMEOUT_MS, Admin, TopicPlan
from lograft.simulation.routing import ClusterClient
from lograft.wire.message import Message
from lograft.wire.messages import alter_partition_reassignments as reassigning
from lograft.wire.messages import elect_leaders as electing
from lograft.wire.messages import incremental_alter_configs as configuring
from lograft.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lograft.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

TOPIC: Final = 2
#: Number of attempts to add a removed voter again.
VOTER_ATTEMPTS: Final = 20
SET: Final = 0


class ClusterAdmin(Admin):
    def __init__(
        self,
        cluster: ClusterClient,
        topics: list[TopicPlan],
        *,
        history: History,
        random: Random,
        voters: Sequence[int] = (1,),
    ) -> None:
        super().__init__(cluster, history=history, random=random)
        self._cluster = cluster
        self._topics = topics
        self._voters = tuple(voters)
        #: Number of successful steps by kind.
        self.done: dict[str, int] = {}

    async def follow(self, steps: list[AdminStep]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for step in steps:
            await asyncio.sleep(max(0.0, start + step.at_ms / 1000 - loop.time()))
            try:
                if await self._do(step):
                    self.done[step.kind] = self.done.get(step.kind, 0) + 1
            except (NotSent, OutcomeUnknown, ErrorResponse):
                self._cluster.mark_stale()

    async def _do(self, step: AdminStep) -> bool:
        topic = self._topics[step.amount % len(self._topics)]
        partition = step.amount % topic.partitions
        existing = [name for name, exists in self.extras.items() if exists]
        match step.kind:
            case "create":
                self._created += 1
                factor = 1 + step.amount % min(3, max(1, len(self._cluster.brokers)))
                await self._create_extra(f"extra{self._created}", replication_factor=factor)
                return True
            case "delete" if existing:
                await self._delete(existing[step.amount % len(existing)])
                return True
            case "grow" if existing:
                return await self._grow(existing[step.amount % len(existing)])
            case "reassign":
                return await self._reassign(topic, partition, step.amount)
            case "cancel":
                return await self._send_reassignment(topic, partition, None)
            case "elect":
                return await self._elect(topic)
            case "config":
                value = ("1000", "60000", "300")[step.amount % 3]
                return await self._configure(topic, "segment.ms", value)
            case "mode":
                value = ("raft", "isr")[step.amount % 2]
                return await self._configure(topic, "replication.mode", value)
            case "voter":
                return await self._replace_voter(step.amount)
            case _:
                return False

    async def _request(self, message: Message, version: int, response_type: Any) -> Any:
        return await self._cluster.request(message, version, response_type, timeout_ms=TIMEOUT_MS)

    async def _grow(self, name: str) -> bool:
        target = CreatePartitionsTopic(name=name, count=5, assignments=None)
        request = CreatePartitionsRequest(topics=[target], timeout_ms=TIMEOUT_MS)
        response = await self._request(request, 3, CreatePartitionsResponse)
        return not response.results[0].error_code

    async def _reassign(self, topic: TopicPlan, partition: int, amount: int) -> bool:
        """Assigns random brokers; if there are too few, the same ones in a different order."""
        await self._cluster.refresh()
        brokers = sorted(self._cluster.brokers)
        count = min(topic.replication_factor, len(brokers))
        replicas = Random(f"{amount}:{partition}").sample(brokers, count)
        return await self._send_reassignment(topic, partition, replicas)

    async def _send_reassignment(
        self, topic: TopicPlan, partition: int, replicas: list[int] | None
    ) -> bool:
        target = reassigning.ReassignablePartition(partition_index=partition, replicas=replicas)
        request = reassigning.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[reassigning.ReassignableTopic(name=topic.name, partitions=[target])],
        )
        response = await self._request(request, 0, reassigning.AlterPartitionReassignmentsResponse)
        return not response.error_code and not response.responses[0].partitions[0].error_code

    async def _replace_voter(self, amount: int) -> bool:
        """Removes a voter from the quorum and adds it again; rejected by a static quorum."""
        node_id = self._voters[amount % len(self._voters)]
        removal = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=directory_id_of(node_id)
        )
        response = await self._request(removal, 0, RemoveRaftVoterResponse)
        if response.error_code:
            return False
        await asyncio.sleep(amount % 10 / 5)
        addition = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=node_id,
            voter_directory_id=directory_id_of(node_id),
            listeners=[Listener(name="CONTROLLER", host=f"n{node_id}", port=CONTROLLER_PORT)],
        )
        for _ in range(VOTER_ATTEMPTS):
            try:
                response = await self._request(addition, 1, AddRaftVoterResponse)
                if not response.error_code:
                    return True
            except (NotSent, OutcomeUnknown):
                pass
            self._cluster.mark_stale()
            await asyncio.sleep(0.5)
        return False

    async def _elect(self, topic: TopicPlan) -> bool:
        """Elects the preferred leaders."""
        partitions = electing.TopicPartitions(
            topic=topic.name, partitions=list(range(topic.partitions))
        )
        request = electing.ElectLeadersRequest(
            election_type=0, topic_partitions=[partitions], timeout_ms=TIMEOUT_MS
        )
        response = await self._request(request, 2, electing.ElectLeadersResponse)
        return not response.error_code

    async def _configure(self, topic: TopicPlan, name: str, value: str) -> bool:
        config = configuring.AlterableConfig(name=name, config_operation=SET, value=value)
        resource = configuring.AlterConfigsResource(
            resource_type=TOPIC, resource_name=topic.name, configs=[config]
        )
        request = configuring.IncrementalAlterConfigsRequest(resources=[resource])
        response = await self._request(request, 1, configuring.IncrementalAlterConfigsResponse)
        return not response.responses[0].error_code
