"""Requests that create and delete topics and add partitions."""

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
    """A topic to create. With -1 the cluster's defaults apply."""

    name: str
    partitions: int = -1
    replicas: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    #: Instead of the numbers: the brokers of each partition, the preferred leader first.
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
    new_topics = {
        topic.name: topic
        for topic in (
            NewTopic(topic) if isinstance(topic, str) else topic for topic in as_iterable(topics)
        )
    }

    async def send(
        node: Node | None, names: Sequence[str]
    ) -> dict[str, CreatedTopic | ClientError]:
        response = await driver.send(
            node,
            CreateTopicsRequest(
                topics=[_creatable_topic(new_topics[name]) for name in names],
                timeout_ms=driver.request_timeout_ms,
                validate_only=validate_only,
            ),
            CreateTopicsResponse,
            at_least=4,
        )
        return {result.name: _created_topic(result) for result in response.topics}

    return await driver.results_of(new_topics, driver.find_controller, send)


async def delete_topics(driver: RequestDriver, topics: Iterable[str | UUID]) -> None:
    async def send(
        node: Node | None, items: Sequence[str | UUID]
    ) -> dict[str | UUID, ClientError | None]:
        response = await driver.send(
            node,
            DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=topic)
                    if isinstance(topic, str)
                    else DeleteTopicState(name=None, topic_id=topic)
                    for topic in items
                ],
                timeout_ms=driver.request_timeout_ms,
            ),
            DeleteTopicsResponse,
            at_least=6,
        )
        by_name = {result.name: result for result in response.responses}
        by_id = {result.topic_id: result for result in response.responses}
        return {
            item: _deletion_error(item, by_name[item] if isinstance(item, str) else by_id[item])
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
                        assignments=_build_assignments((assignments or {}).get(name)),
                    )
                    for name in names
                ],
                timeout_ms=driver.request_timeout_ms,
                validate_only=validate_only,
            ),
            CreatePartitionsResponse,
        )
        return {
            result.name: broker_error(
                result.error_code, f"partitions of {result.name!r}", result.error_message
            )
            if result.error_code
            else None
            for result in response.results
        }

    await driver.results_of(counts, driver.find_controller, send)


def _creatable_topic(topic: NewTopic) -> CreatableTopic:
    is_assigned = bool(topic.assignment)
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if is_assigned else topic.partitions,
        replication_factor=-1 if is_assigned else topic.replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignment.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created_topic(result: CreatableTopicResult) -> CreatedTopic | ClientError:
    if result.error_code:
        return broker_error(result.error_code, f"topic {result.name!r}", result.error_message)
    configs = {config.name: config.value for config in result.configs or ()}
    return CreatedTopic(
        result.name, result.topic_id, result.num_partitions, result.replication_factor, configs
    )


def _deletion_error(item: str | UUID, result: DeletableTopicResult) -> ClientError | None:
    if not result.error_code:
        return None
    return broker_error(result.error_code, f"topic {str(item)!r}")


def _build_assignments(
    replicas: Sequence[Sequence[int]] | None,
) -> list[CreatePartitionsAssignment] | None:
    if replicas is None:
        return None
    return [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in replicas]
