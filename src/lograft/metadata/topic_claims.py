"""Claims of topics with `subscription.mode=ptp` (point to point), which only one group may read.

The claiming group is the topic config `subscription.group`. It is in the metadata log because two
groups may have their coordinators on different brokers. The first group that wants to read the
topic or to commit to it claims the topic by compare-and-set; a second group is rejected. A claim is
never released: if the claiming group no longer uses the topic (no member subscribes to it and no
offsets are committed for it), the next group that requests the topic gets the claim.
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


def find_unclaimed(image: MetadataImage, group_id: str, topics: Iterable[str]) -> list[str]:
    """The topics that this group may not read now: claimed by another group, or not claimed yet."""
    claims = image.claims
    return [topic for topic in topics if claims.get(topic, group_id) != group_id] if claims else []


def claim_rejection(topic: str, *, holder: str, group_id: str) -> Rejected:
    return Rejected(
        ErrorCode.POLICY_VIOLATION,
        f"Topic '{topic}' is read point to point ({SUBSCRIPTION_MODE}={POINT_TO_POINT}) by group"
        f" '{holder}'. Group '{group_id}' may subscribe to it or commit to it only after group"
        f" '{holder}' has left and its committed offsets for the topic are deleted.",
    )


def claim_request(group_id: str, topic: str, *, held_before: str) -> IncrementalAlterConfigsRequest:
    """Idempotent. `held_before` is the group that may lose the topic to this claim, or ""."""
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
    group_id = _claiming_group(resource)
    if topic not in image.topic_ids:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic}' does not exist.")
    holder = image.claims.get(topic, group_id)
    if holder == group_id:
        return []  # It has the claim, or no longer needs one.
    if holder and holder != held_before:
        raise claim_rejection(topic, holder=holder, group_id=group_id)
    return [
        ConfigRecord(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            name=SUBSCRIPTION_GROUP,
            value=group_id,
        )
    ]


def _claiming_group(resource: AlterConfigsResource) -> str:
    named = [config.value for config in resource.configs if config.name == SUBSCRIPTION_GROUP]
    if resource.resource_type != ResourceType.TOPIC or len(resource.configs) != 1 or not named:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"A claim must set only {SUBSCRIPTION_GROUP} of a topic."
        )
    if not named[0]:
        raise Rejected(ErrorCode.INVALID_GROUP_ID, "The claiming group must have a group id.")
    return named[0]


# ── changes to the configs ───────────────────────────────────────────────────────────────────


def settle_claim(
    topic: str,
    new_values: Mapping[str, str],
    current: Mapping[str, str],
    *,
    users: Collection[str] | None,
) -> dict[str, str]:
    """The topic's configs after the change, including the claim that they imply. `users` are the
    groups that read the topic or have committed offsets for it; None if neither the mode nor the
    group changes. Raises Rejected if there are several users, or others than the configured
    group."""
    settings = dict(new_values)
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
            " or have committed offsets for it. Stop the members of the other groups and delete"
            " these groups, or their offsets for the topic.",
        )
    for user in users:
        settings[SUBSCRIPTION_GROUP] = user
    return settings
