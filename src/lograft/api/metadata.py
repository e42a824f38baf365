"""Metadata, versions 0-13: brokers, topics, partitions and their leaders, as this broker knows
them.

Topics that do not exist are created on demand where `auto.create.topics.enable` and the request
allow it; the answer then already has them. v0 takes an empty list for "all topics", later versions
null. v5: offline replicas. v7: leader epochs. v8: authorized operations on request. v10: topic ids.
v12: look-up by id. v13: an error for the whole answer, which is never set here.
"""

from collections.abc import Collection, Container, Coroutine
from typing import Any, Final
from uuid import UUID

from lograft.api.authorization import authorized_operations, cluster_operations, find_denied
from lograft.api.context import Api, Context
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.control.topic_creation import create_on_demand
from lograft.broker.shared_services import SharedServices
from lograft.metadata.image import MetadataImage
from lograft.metadata.topic_names import check_topic_name
from lograft.metadata.types import PartitionState, TopicState
from lograft.model.errors import ErrorCode, InvalidInput, Rejected
from lograft.model.types import INTERNAL_TOPICS, NO_NODE, ZERO_UUID
from lograft.security.authorization import (
    CLUSTER_CREATE,
    CLUSTER_DESCRIBE,
    TOPIC_CREATE,
    TOPIC_DESCRIBE,
    ResourceType,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API: Final = Api(
    key=3,
    versions=range(14),
    needs=each_item(TOPIC_DESCRIBE, CLUSTER_CREATE, TOPIC_CREATE, CLUSTER_DESCRIBE),
)

IDS_SINCE: Final = 12
LISTENER_ERROR_SINCE: Final = 6


def handle(
    context: Context, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    version = context.api_version
    if request.topics is None or (version == 0 and not request.topics):
        return _answer(context, request, {})
    names = []
    for topic in request.topics:
        if version < IDS_SINCE and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise InvalidInput(f"topic ids need Metadata version {IDS_SINCE} or later")
        if topic.name is not None and topic.topic_id == ZERO_UUID:
            names.append(topic.name)
    broker: Broker = context.broker
    missing = [name for name in dict.fromkeys(names) if name not in broker.image.topic_ids]
    hidden = find_denied(context, TOPIC_DESCRIBE, missing)
    refused = {name: code for name in missing if (code := _illegal(name))}
    # Internal topics are made by their coordinators, with settings of their own.
    kept_out = refused.keys() | hidden | INTERNAL_TOPICS
    missing = [name for name in missing if name not in kept_out]
    if missing and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        return _create_first(context, request, missing, refused)
    if request.topics and len(broker.image.brokers) > 1:
        return _settle_first(context, request, refused)
    return _answer(context, request, refused)


def error_response(request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    """Every topic gets the error; there is no better place for it before v13."""
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


async def _create_first(
    context: Context, request: MetadataRequest, missing: list[str], refused: dict[str, int]
) -> MetadataResponse:
    uncreatable = find_denied(context, TOPIC_CREATE, missing, unless=CLUSTER_CREATE)
    refused |= dict.fromkeys(uncreatable, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    missing = [name for name in missing if name not in uncreatable]
    if missing:
        refused |= await create_on_demand(context.broker.metadata, context.broker.link, missing)
    return _answer(context, request, refused)


async def _settle_first(
    context: Context, request: MetadataRequest, refused: dict[str, int]
) -> MetadataResponse:
    """A client that lost its leader asks at once and, told the old one, not again for seconds."""
    broker: Broker = context.broker
    await broker.replicas.suspect_brokers.wait_settled(broker.leads_any)
    return _answer(context, request, refused)


def _illegal(name: str) -> int:
    try:
        check_topic_name(name)
    except Rejected as refusal:
        return refusal.code
    return 0


def _answer(
    context: Context, request: MetadataRequest, refused: dict[str, int]
) -> MetadataResponse:
    broker: Broker = context.broker
    image = broker.image
    version = context.api_version
    response = MetadataResponse(cluster_id=broker.cluster_id, controller_id=NO_NODE)
    for state in image.brokers.values():
        end = broker.endpoint_of(state.broker_id, context.listener)
        if end is not None:
            response.brokers.append(
                MetadataResponseBroker(
                    node_id=state.broker_id, host=end.host, port=end.port, rack=end.rack
                )
            )
    alive = dict.fromkeys(answer.node_id for answer in response.brokers)
    # A listener that the brokers do not advertise has a controller all the same, as in Kafka.
    online = list(alive) or [each for each, state in image.brokers.items() if not state.fenced]
    response.controller_id = any_broker(broker.shared, online)
    if request.topics is None or (version == 0 and not request.topics):
        hidden = find_denied(context, TOPIC_DESCRIBE, image.topic_ids)
        response.topics = [
            _topic(state, alive, image, version)
            for state in image.topics.values()
            if state.name not in hidden
        ]
    else:
        # Each once: a topic of many partitions, named many times, would be a large answer.
        asked = {(each.topic_id, each.name): each for each in request.topics}.values()
        response.topics = _named_topics(context, asked, refused, alive)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = authorized_operations(
                    context, ResourceType.TOPIC, topic.name or ""
                )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _named_topics(
    context: Context,
    asked: Collection[MetadataRequestTopic],
    refused: dict[str, int],
    alive: Container[int],
) -> list[MetadataResponseTopic]:
    image = context.broker.image
    found = [
        (each, image.topics.get(each.topic_id))
        if each.topic_id != ZERO_UUID
        else (each, image.topic(each.name or ""))
        for each in asked
    ]
    names = (each.name if state is None else state.name for each, state in found)
    hidden = find_denied(context, TOPIC_DESCRIBE, filter(None, names))
    topics = []
    for each, state in found:
        if (each.name if state is None else state.name) in hidden:
            topics.append(_hidden(each))
        elif state is None:
            topics.append(_unknown(each.name, each.topic_id, refused))
        else:
            topics.append(_topic(state, alive, image, context.api_version))
    return topics


def _hidden(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """Names the topic as the request did, and no further."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=asked.name if asked.topic_id == ZERO_UUID else None,
        topic_id=asked.topic_id,
    )


def any_broker(shared: SharedServices, alive: list[int]) -> int:
    """Who is told to clients as the controller: any broker forwards what is meant for it, and
    choosing at random spreads the work."""
    return alive[shared.runtime.randomness.below(len(alive))] if alive else NO_NODE


def _unknown(name: str | None, topic_id: UUID, refused: dict[str, int]) -> MetadataResponseTopic:
    if topic_id != ZERO_UUID:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    code = refused.get(name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(
    topic: TopicState, alive: Container[int], image: MetadataImage, version: int
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(index, state, alive, image, version)
            for index, state in topic.partitions.items()
        ],
    )


def _partition(
    index: int, state: PartitionState, alive: Container[int], image: MetadataImage, version: int
) -> MetadataResponsePartition:
    answer = MetadataResponsePartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=image.offline_replicas(state, alive),
    )
    if state.leader not in alive:
        # Since v6 a leader that has no endpoint for this client is told apart from no leader.
        without_listener = state.leader in image.brokers and version >= LISTENER_ERROR_SINCE
        answer.error_code = (
            ErrorCode.LISTENER_NOT_FOUND if without_listener else ErrorCode.LEADER_NOT_AVAILABLE
        )
        answer.leader_id = NO_NODE
    elif version == 0:
        # Clients of v0 cannot resolve replicas that are not among the brokers.
        answer.replica_nodes = [node for node in state.replicas if node in alive]
        answer.isr_nodes = [node for node in state.isr if node in alive]
        if len(answer.replica_nodes) < len(state.replicas):
            answer.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return answer
