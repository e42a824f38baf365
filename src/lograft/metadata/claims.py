"""Topics that are read point to point (`subscription.mode=ptp`): by one group and no other.

Which group that is, is the topic's setting `subscription.group`: one fact in the metadata log,
since two groups may have their coordinators on two brokers. The first group that wants to read or
to commit claims the topic, by compare and set; who comes second finds it taken. Nothing gives a
claim back: one that its group does not use any more, without members that subscribe to the topic
and without positions in it, goes to the next group that asks.
"""

from collections.abc import Collection, Iterable, Mapping

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    POINT_TO_POINT,
    SUBSCRIPTION_GROUP,
    SUBSCRIPTION_MODE,
    ControllerResult,
    ResourceType,
)
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.records.config_record import ConfigRecord


def unclaimed(image: MetadataImage, group_id: str, topics: Iterable[str]) -> list[str]:
    """Those that this group may not read as things are: another has them, or nobody yet."""
    claims = image.claims
    return [topic for topic in topics if claims.get(topic, group_id) != group_id] if claims else []


def refusal(topic: str, *, holder: str, group_id: str) -> Rejected:
    return Rejected(
        ErrorCode.POLICY_VIOLATION,
        f"Topic '{topic}' is read point to point ({SUBSCRIPTION_MODE}={POINT_TO_POINT}) by group"
        f" '{holder}': group '{group_id}' may not subscribe to it or commit to it before that one"
        " has left and its positions in the topic are deleted.",
    )


def claim_request(group_id: str, topic: str, *, held_before: str) -> IncrementalAlterConfigsRequest:
    """Safe to ask twice. `held_before`: who may lose the topic by it; "": nobody."""
    resource = AlterConfigsResource(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        configs=[AlterableConfig(name=SUBSCRIPTION_GROUP, value=group_id)],
    )
    return IncrementalAlterConfigsRequest(
        resources=[resource], claims=True, held_before=held_before
    )


def claim_topics(
    image: MetadataImage, request: IncrementalAlterConfigsRequest
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    records: list[ConfigRecord] = []
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            records += _claim(image, resource, request.held_before)
        except Rejected as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return ControllerResult(tuple(records), IncrementalAlterConfigsResponse(responses=responses))


def _claim(
    image: MetadataImage, resource: AlterConfigsResource, held_before: str
) -> list[ConfigRecord]:
    topic = resource.resource_name
    group_id = _claimant(resource)
    if topic not in image.topic_ids:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'.")
    holder = image.claims.get(topic, group_id)
    if holder == group_id:
        return []  # it has it, or needs no claim any more
    if holder and holder != held_before:
        raise refusal(topic, holder=holder, group_id=group_id)
    return [
        ConfigRecord(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            name=SUBSCRIPTION_GROUP,
            value=group_id,
        )
    ]


def _claimant(resource: AlterConfigsResource) -> str:
    named = [one.value for one in resource.configs if one.name == SUBSCRIPTION_GROUP]
    if resource.resource_type != ResourceType.TOPIC or len(resource.configs) != 1 or not named:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"A claim is one {SUBSCRIPTION_GROUP} of a topic."
        )
    if not named[0]:
        raise Rejected(ErrorCode.INVALID_GROUP_ID, "A topic is claimed by a group with a name.")
    return named[0]


# ── settings that somebody changes ───────────────────────────────────────────────────────────


def settled(
    topic: str,
    wanted: Mapping[str, str],
    current: Mapping[str, str],
    *,
    users: Collection[str] | None,
) -> dict[str, str]:
    """The settings as they shall be, with the group that follows from them. `users`: the groups
    that read the topic or hold positions in it; None: neither mode nor group is being changed.
    Rejected: they are more than one, or another than the one that is named."""
    settings = dict(wanted)
    group_id = settings.get(SUBSCRIPTION_GROUP)
    if settings.get(SUBSCRIPTION_MODE) != POINT_TO_POINT:
        if group_id == current.get(SUBSCRIPTION_GROUP):
            settings.pop(SUBSCRIPTION_GROUP, None)
        return settings
    if users is None:
        return settings
    if len(users) > 1 or (group_id is not None and any(user != group_id for user in users)):
        readers = " and ".join(f"'{user}'" for user in sorted(users))
        whose = "one group" if group_id is None else f"group '{group_id}' alone"
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"Topic '{topic}' cannot be read point to point by {whose}: {readers} subscribe to it"
            " or hold positions in it. Stop the members of the others and delete these groups, or"
            " their offsets for the topic.",
        )
    for user in users:
        settings[SUBSCRIPTION_GROUP] = user
    return settings
