"""Decides the creation and deletion of topics."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from uuid import UUID

from lograft.metadata.auto_creation import check_on_demand_max
from lograft.metadata.image import MetadataImage
from lograft.metadata.mode_switch import MODE, check_modes
from lograft.metadata.partitions import (
    PARTITIONS_PER_REQUEST_MAX,
    check_assignment,
    new_partition,
    place_replicas,
)
from lograft.metadata.topic_names import check_topic_name, similar_form
from lograft.metadata.types import Admit, ControllerResult, ResourceType, admit_all
from lograft.model.errors import ErrorCode, InvalidConfig, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.dynamic import check_no_variables
from lograft.model.settings.topic import TOPIC_CONFIGS, validate_topic_configs
from lograft.model.types import INTERNAL_TOPICS, METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from lograft.model.uuids import uuid_to_text
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
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
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.remove_topic_record import RemoveTopicRecord
from lograft.wire.records.topic_record import TopicRecord


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    *,
    config: BrokerConfig,
    new_id: Callable[[], UUID],
    admit: Admit = admit_all,
) -> ControllerResult[CreateTopicsResponse]:
    """Decides each topic separately: rejected topics do not affect the others. `admit` counts the
    partitions of each topic, and raises Rejected beyond the client's quota."""
    _check_total(request.topics, config)
    counts = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            counts[topic.name] = -1  # Reported only once.
            results.append(_rejected_result(topic.name, _duplicate_rejection(topic.name)))
        elif counts[topic.name] == 1:
            try:
                new_records = _create(image, topic, config=config, new_id=new_id)
                admit(sum(type(record) is PartitionRecord for record in new_records))
            except Rejected as rejection:
                results.append(_rejected_result(topic.name, rejection))
                continue
            records += new_records
            results.append(_created_result(new_records, config))
    if request.validate_only:
        records.clear()
        for result in results:
            result.topic_id = ZERO_UUID
    return ControllerResult(tuple(records), CreateTopicsResponse(topics=results))


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    *,
    config: BrokerConfig,
    admit: Admit = admit_all,
) -> ControllerResult[DeleteTopicsResponse]:
    """Deletes topics by name (in `topic_names` up to version 5) or by id. `admit` as above."""
    requested = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    if not config.delete_topic_enable:
        raise Rejected(
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled: delete.topic.enable is false.",
        )
    times = Counter((topic.name, topic.topic_id) for topic in requested)
    removed: dict[UUID, None] = {}
    results = []
    for (name, given_id), count in times.items():
        result = DeletableTopicResult(name=name, topic_id=given_id)
        try:
            if count > 1:
                raise Rejected(ErrorCode.INVALID_REQUEST, "The request contains the topic twice.")
            topic_id = _topic_to_delete(image, name, given_id)
            if topic_id in removed:
                raise Rejected(
                    ErrorCode.INVALID_REQUEST, "The request contains the topic by name and by id."
                )
            admit(len(image.topics[topic_id].partitions))
        except Rejected as rejection:
            result.error_code = rejection.code
            result.error_message = rejection.message
        else:
            result.topic_id = topic_id
            result.name = image.topics[topic_id].name
            removed[topic_id] = None
        results.append(result)
    records = tuple(RemoveTopicRecord(topic_id=topic_id) for topic_id in removed)
    return ControllerResult(records, DeleteTopicsResponse(responses=results))


def check_new_name(image: MetadataImage, name: str) -> None:
    if name == METADATA_TOPIC:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"{name} is the metadata log and cannot be created."
        )
    check_topic_name(name)
    if name in image.topic_ids:
        raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    form = similar_form(name)
    if form is not None:
        for other in image.similar_names.get(form, ()):
            raise Rejected(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with the existing topic '{other}', because metric names"
                " do not distinguish '.' and '_'.",
            )


def checked_configs(
    settings: Sequence[CreatableTopicConfig], config: BrokerConfig
) -> dict[str, str]:
    values: dict[str, str] = {}
    for setting in settings:
        if setting.value is None:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"The value of configuration {setting.name} must not be null.",
            )
        values[setting.name] = setting.value  # As in Kafka, the last duplicate wins.
    try:
        check_no_variables(values)
        validate_topic_configs(values, config)
    except InvalidConfig as error:
        raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from None
    return values


def _check_total(topics: Sequence[CreatableTopic], config: BrokerConfig) -> None:
    total = sum(
        len(topic.assignments)
        or (config.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in topics
    )
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"One request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions, but this one"
            f" creates {total}. Split it.",
        )


def _create(
    image: MetadataImage,
    topic: CreatableTopic,
    *,
    config: BrokerConfig,
    new_id: Callable[[], UUID],
) -> list[Message]:
    check_new_name(image, topic.name)
    values = checked_configs(topic.configs, config)
    check_on_demand_max(topic.name, values, {})
    mode = (
        config.internal_topics_replication_mode
        if topic.name in INTERNAL_TOPICS
        else config.default_replication_mode
    )
    if MODE not in values and mode != TOPIC_CONFIGS[MODE].default:
        # Stored with the topic, so that the config of one node cannot switch topics later.
        values[MODE] = mode
    enabling = check_modes(image, values)
    if topic.assignments:
        assignments = _given_assignments(image, topic)
    else:
        assignments = _placed_assignments(image, topic, config)
    topic_id = _generate_topic_id(image, new_id)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += (
        ConfigRecord(
            resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value
        )
        for name, value in values.items()
    )
    records += (
        new_partition(image, topic_id, index, replicas)
        for index, replicas in enumerate(assignments)
    )
    return records + enabling


def _given_assignments(image: MetadataImage, topic: CreatableTopic) -> list[tuple[int, ...]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            "The number of partitions and the replication factor must both be -1 if replicas are"
            " assigned manually.",
        )
    by_index: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The request assigns partition {assignment.partition_index} twice.",
            )
        by_index[assignment.partition_index] = tuple(assignment.broker_ids)
    if sorted(by_index) != list(range(len(by_index))):
        raise Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Partitions must be numbered from 0 without gaps, but the request assigns"
            f" {sorted(by_index)[:20]}.",
        )
    factor = len(by_index[0])
    for index in range(len(by_index)):
        check_assignment(image, index, by_index[index], replication_factor=factor)
    return [by_index[index] for index in range(len(by_index))]


def _placed_assignments(
    image: MetadataImage, topic: CreatableTopic, config: BrokerConfig
) -> list[tuple[int, ...]]:
    count, factor = topic.num_partitions, topic.replication_factor
    if factor < -1 or factor == 0:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor must be at least 1, or -1 for the default, not {factor}.",
        )
    if count < -1 or count == 0:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions must be at least 1, or -1 for the default, not {count}.",
        )
    if count == -1:
        count = config.num_partitions
    if factor == -1:
        factor = config.default_replication_factor
    return place_replicas(image, topic.name, range(count), replication_factor=factor)


def _generate_topic_id(image: MetadataImage, new_id: Callable[[], UUID]) -> UUID:
    """Never a reserved id, nor one whose text could be mistaken for a command-line option."""
    while True:
        topic_id = new_id()
        if (
            topic_id not in (ZERO_UUID, METADATA_TOPIC_ID)
            and topic_id not in image.topics
            and not uuid_to_text(topic_id).startswith("-")
        ):
            return topic_id


def _topic_to_delete(image: MetadataImage, name: str | None, given_id: UUID) -> UUID:
    if name is not None and given_id != ZERO_UUID:
        raise Rejected(ErrorCode.INVALID_REQUEST, "Specify either the topic's name or its id.")
    if name is not None:
        topic_id = image.topic_ids.get(name)
        if topic_id is None:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic_id
    if given_id == ZERO_UUID:
        raise Rejected(ErrorCode.INVALID_REQUEST, "Neither a topic name nor a topic id is given.")
    if given_id not in image.topics:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_ID, f"Topic id {uuid_to_text(given_id)} does not exist."
        )
    return given_id


def _duplicate_rejection(name: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, f"The request contains topic '{name}' twice.")


def _rejected_result(name: str, rejection: Rejected) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=rejection.code, error_message=rejection.message
    )


def _describe(overrides: Mapping[str, str], config: BrokerConfig) -> list[CreatableTopicConfigs]:
    """The configs of a new topic for the CreateTopics response."""
    defaults = _describe_defaults(config)
    if not overrides:
        return list(defaults.values())
    changed = _describe_settings(overrides, config, names=overrides.keys())
    return [
        changed.get(name) or defaults[name]
        for name in TOPIC_CONFIGS
        if name in changed or name in defaults
    ]


@lru_cache(maxsize=8)
def _describe_defaults(config: BrokerConfig) -> Mapping[str, CreatableTopicConfigs]:
    """Describes a topic without overrides; cached, because a BrokerConfig never changes."""
    return _describe_settings({}, config)


def _describe_settings(
    overrides: Mapping[str, str], config: BrokerConfig, *, names: Collection[str] | None = None
) -> dict[str, CreatableTopicConfigs]:
    from lograft.model.settings.resolution import describe_topic

    return {
        entry.name: CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic(overrides, config, names=names)
    }


def _created_result(new_records: Sequence[Message], config: BrokerConfig) -> CreatableTopicResult:
    topic = new_records[0]
    assert isinstance(topic, TopicRecord)
    overrides = {
        record.name: record.value
        for record in new_records
        if isinstance(record, ConfigRecord) and record.value is not None
    }
    partitions = [record for record in new_records if isinstance(record, PartitionRecord)]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_describe(overrides, config),
    )
