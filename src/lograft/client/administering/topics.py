"""Topics: made, grown, deleted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, broker_error
from lograft.client.network import Node
from lograft.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lograft.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1: as the cluster's settings say."""

    name: str
    partitions: int = -1
    replicas: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    #: Instead of numbers: the brokers of each partition, the preferred leader first.
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    id: UUID
    partitions: int
    replicas: int
    configs: Mapping[str, str | None]


async def create_topics(
    driver: RequestDriver, topics: Iterable[NewTopic | str], *, validate_only: bool = False
) -> dict[str, CreatedTopic]:
    wanted = {
        one.name: one
        for one in (NewTopic(one) if isinstance(one, str) else one for one in as_iterable(topics))
    }

    async def send(
        node: Node | None, names: Sequence[str]
    ) -> dict[str, CreatedTopic | ClientError]:
        response = await driver.send(
            node,
            CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=driver.request_timeout_ms,
                validate_only=validate_only,
            ),
            CreateTopicsResponse,
            at_least=4,
        )
        return {one.name: _created(one) for one in response.topics}

    return await driver.results_of(wanted, driver.find_controller, send)


async def delete_topics(driver: RequestDriver, topics: Iterable[str | UUID]) -> None:
    async def send(
        node: Node | None, items: Sequence[str | UUID]
    ) -> dict[str | UUID, ClientError | None]:
        response = await driver.send(
            node,
            DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=one)
                    if isinstance(one, str)
                    else DeleteTopicState(name=None, topic_id=one)
                    for one in items
                ],
                timeout_ms=driver.request_timeout_ms,
            ),
            DeleteTopicsResponse,
            at_least=6,
        )
        by_name = {one.name: one for one in response.responses}
        by_id = {one.topic_id: one for one in response.responses}
        return {
            item: _deleted(item, by_name[item] if isinstance(item, str) else by_id[item])
            for item in items
        }

    await driver.results_of(topics, driver.find_controller, send)


async def create_partitions(
    driver: RequestDriver,
    counts: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
) -> None:
    async def send(node: Node | None, names: Sequence[str]) -> dict[str, ClientError | None]:
        response = await driver.send(
            node,
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=counts[name],
                        assignments=_placed((assignments or {}).get(name)),
                    )
                    for name in names
                ],
                timeout_ms=driver.request_timeout_ms,
                validate_only=validate_only,
            ),
            CreatePartitionsResponse,
        )
        return {
            one.name: broker_error(one.error_code, f"partitions of {one.name!r}", one.error_message)
            if one.error_code
            else None
            for one in response.results
        }

    await driver.results_of(counts, driver.find_controller, send)


def _creatable(topic: NewTopic) -> CreatableTopic:
    placed = bool(topic.assignment)
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if placed else topic.partitions,
        replication_factor=-1 if placed else topic.replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignment.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(told: CreatableTopicResult) -> CreatedTopic | ClientError:
    if told.error_code:
        return broker_error(told.error_code, f"topic {told.name!r}", told.error_message)
    configs = {one.name: one.value for one in told.configs or ()}
    return CreatedTopic(
        told.name, told.topic_id, told.num_partitions, told.replication_factor, configs
    )


def _deleted(item: str | UUID, told: DeletableTopicResult) -> ClientError | None:
    if not told.error_code:
        return None
    return broker_error(told.error_code, f"topic {str(item)!r}")


def _placed(
    replicas: Sequence[Sequence[int]] | None,
) -> list[CreatePartitionsAssignment] | None:
    if replicas is None:
        return None
    return [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in replicas]
