"""Decides changes to the configs of topics, brokers, groups and client metrics.

AlterConfigs replaces all configs of a resource, IncrementalAlterConfigs changes only those in the
request. Both apply atomically per resource.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from lograft.metadata.auto_creation import check_on_demand_max
from lograft.metadata.config_effects import check_min_isr, effects
from lograft.metadata.image import MetadataImage
from lograft.metadata.mode_switch import check_modes
from lograft.metadata.replication_factor import resize
from lograft.metadata.resource_configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    check_client_metrics_configs,
    check_group_configs,
)
from lograft.metadata.topic_claims import settle_claim
from lograft.metadata.topic_names import check_topic_name
from lograft.metadata.types import (
    POINT_TO_POINT,
    SUBSCRIPTION_GROUP,
    SUBSCRIPTION_MODE,
    ConfigResource,
    ControllerResult,
    ResourceType,
)
from lograft.model.errors import ErrorCode, InvalidConfig, InvalidInput, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.broker_table import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from lograft.model.settings.dynamic import check_no_variables, validate_dynamic
from lograft.model.settings.keys import Alteration, AlterOperation, ConfigKey, apply_alterations
from lograft.model.settings.topic import (
    TOPIC_CONFIGS,
    find_invalid_overrides,
    validate_topic_configs,
)
from lograft.wire.message import Message
from lograft.wire.messages import alter_configs as replacing
from lograft.wire.messages import incremental_alter_configs as incremental
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord


class _Resource(Protocol):
    resource_type: int
    resource_name: str


class _Named(Protocol):
    name: str


class _Request(Protocol):
    @property
    def resources(self) -> Sequence["_Altered"]: ...


class _Altered(_Resource, Protocol):
    @property
    def configs(self) -> Sequence[_Named]: ...


R = TypeVar("R", bound=_Resource)

#: For topics whose subscription configs a request changes: the groups that use each topic.
Users = Mapping[str, Collection[str]]
_NO_USERS: Final[Users] = {}


def topics_with_new_subscriptions(request: _Request) -> list[str]:
    """The topics whose users must be known to decide the request."""
    return [
        resource.resource_name
        for resource in request.resources
        if resource.resource_type == ResourceType.TOPIC
        and any(
            config.name in (SUBSCRIPTION_MODE, SUBSCRIPTION_GROUP) for config in resource.configs
        )
    ]


def alter_configs(
    image: MetadataImage,
    request: replacing.AlterConfigsRequest,
    *,
    config: BrokerConfig,
    users: Users = _NO_USERS,
) -> ControllerResult[replacing.AlterConfigsResponse]:
    records: list[ConfigRecord] = []
    responses = []
    for resource, is_duplicate in _with_duplicates(request.resources):
        response = replacing.AlterConfigsResourceResponse(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            _check_resource(image, resource, is_duplicate)
            new_values = _keep_claim(image, resource, replaced_values(resource))
            records += _changes(image, resource, new_values, new_values, config, users)
        except Rejected as rejection:
            response.error_code, response.error_message = rejection.code, rejection.message
        responses.append(response)
    if request.validate_only:
        records.clear()
    all_records = (*_enabling_records(image, records), *records, *effects(image, records, config))
    return ControllerResult(all_records, replacing.AlterConfigsResponse(responses=responses))


def incremental_alter_configs(
    image: MetadataImage,
    request: incremental.IncrementalAlterConfigsRequest,
    *,
    config: BrokerConfig,
    users: Users = _NO_USERS,
) -> ControllerResult[incremental.IncrementalAlterConfigsResponse]:
    records: list[ConfigRecord] = []
    resize_records: list[Message] = []
    responses = []
    for resource, is_duplicate in _with_duplicates(request.resources):
        response = incremental.AlterConfigsResourceResponse(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            _check_resource(image, resource, is_duplicate)
            new_values = altered_values(image, resource)
            named = [config.name for config in resource.configs]
            changes = _changes(image, resource, new_values, named, config, users)
            _check_partitions(image, request, resource)
            resize_records += _resize_records(image, request, resource, config)
            records += changes
        except Rejected as rejection:
            response.error_code, response.error_message = rejection.code, rejection.message
        responses.append(response)
    if request.validate_only:
        records.clear()
        resize_records.clear()
    all_records = (
        *_enabling_records(image, records),
        *records,
        *effects(image, records, config),
        *resize_records,
    )
    return ControllerResult(
        all_records, incremental.IncrementalAlterConfigsResponse(responses=responses)
    )


def _check_partitions(
    image: MetadataImage,
    request: incremental.IncrementalAlterConfigsRequest,
    resource: incremental.AlterConfigsResource,
) -> None:
    """Partitions in the request must exist."""
    topic = image.topic(resource.resource_name)
    for index in request.partitions:
        if topic is None or index not in topic.partitions:
            raise Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Partition {resource.resource_name}-{index} does not exist.",
            )


def _resize_records(
    image: MetadataImage,
    request: incremental.IncrementalAlterConfigsRequest,
    resource: incremental.AlterConfigsResource,
    config: BrokerConfig,
) -> tuple[Message, ...]:
    """The records of a new replication factor, applied atomically with the configs."""
    if request.replication_factor <= 0:
        return ()
    topic = image.topic(resource.resource_name)
    if resource.resource_type != ResourceType.TOPIC or topic is None or len(request.resources) > 1:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, "A replication factor can be set for a single topic only."
        )
    return resize(image, topic, request.partitions, request.replication_factor, config=config)


def _with_duplicates(resources: Sequence[R]) -> Iterable[tuple[R, bool]]:
    """Each resource, and whether the request contains it more than once."""
    times: dict[ConfigResource, int] = {}
    for resource in resources:
        key = ConfigResource(resource.resource_type, resource.resource_name)
        times[key] = times.get(key, 0) + 1
    for resource in resources:
        key = ConfigResource(resource.resource_type, resource.resource_name)
        yield resource, times[key] > 1


def _check_resource(image: MetadataImage, resource: _Resource, is_duplicate: bool) -> None:
    if is_duplicate:
        raise Rejected(ErrorCode.INVALID_REQUEST, "Each resource may appear only once.")
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise Rejected(
                    ErrorCode.INVALID_REQUEST, "Topics have no default configs. Specify a topic."
                )
            check_topic_name(name)
            if name not in image.topic_ids:
                raise Rejected(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist."
                )
        case ResourceType.BROKER:
            if name and not name.isdecimal():
                raise Rejected(
                    ErrorCode.INVALID_REQUEST,
                    f"'{name}' is not a broker id. Use a number, or '' for all brokers.",
                )
            if name and int(name) not in (image.brokers | image.controllers):
                raise Rejected(
                    ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {name} is not registered."
                )
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            if not name:
                raise Rejected(ErrorCode.INVALID_REQUEST, "The resource name must not be empty.")
        case _:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"Resources of type {resource.resource_type} have no configs in the metadata log.",
            )


def replaced_values(resource: replacing.AlterConfigsResource) -> dict[str, str]:
    """All explicit values of the resource after AlterConfigs."""
    values: dict[str, str] = {}
    for entry in resource.configs:
        if entry.name in values:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"Duplicate configuration {entry.name}.")
        if entry.value is None:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"The value of configuration {entry.name} must not be null.",
            )
        values[entry.name] = entry.value
    return values


def altered_values(
    image: MetadataImage, resource: incremental.AlterConfigsResource
) -> dict[str, str]:
    """All explicit values of the resource after IncrementalAlterConfigs."""
    key = ConfigResource(resource.resource_type, resource.resource_name)
    alterations = _alterations(resource.configs)
    try:
        return apply_alterations(_keys_of(key.type), image.configs.get(key, {}), alterations)
    except InvalidConfig as error:
        raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from None


def _keep_claim(
    image: MetadataImage, resource: _Resource, new_values: dict[str, str]
) -> dict[str, str]:
    """AlterConfigs keeps the claim of a topic unless the request contains another one."""
    if (
        resource.resource_type == ResourceType.TOPIC
        and new_values.get(SUBSCRIPTION_MODE) == POINT_TO_POINT
        and image.claims.get(resource.resource_name)
    ):
        new_values.setdefault(SUBSCRIPTION_GROUP, image.claims[resource.resource_name])
    return new_values


def _alterations(configs: Iterable[incremental.AlterableConfig]) -> list[Alteration]:
    alterations: dict[str, Alteration] = {}
    for entry in configs:
        if entry.name in alterations:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"Duplicate configuration {entry.name}.")
        try:
            operation = AlterOperation(entry.config_operation)
        except ValueError:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"Unknown config operation {entry.config_operation}:"
                " use 0 (set), 1 (delete), 2 (append) or 3 (subtract).",
            ) from None
        if entry.value is None and operation is not AlterOperation.DELETE:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"The value of configuration {entry.name} must not be null.",
            )
        alterations[entry.name] = Alteration(entry.name, operation, entry.value)
    return list(alterations.values())


def _keys_of(resource_type: int) -> Mapping[str, ConfigKey]:
    if resource_type == ResourceType.TOPIC:
        return TOPIC_CONFIGS
    if resource_type == ResourceType.BROKER:
        return {**BROKER_CONFIGS, **DYNAMIC_BROKER_CONFIGS}
    if resource_type == ResourceType.GROUP:
        return GROUP_CONFIGS
    return CLIENT_METRICS_CONFIGS


def _enabling_records(
    image: MetadataImage, records: Iterable[ConfigRecord]
) -> list[FeatureLevelRecord]:
    """The feature level that the first topic in raft mode requires."""
    for record in records:
        if record.resource_type == ResourceType.TOPIC and record.value is not None:
            found = check_modes(image, {record.name: record.value})
            if found:
                return found
    return []


def _check_no_variables(values: Mapping[str, str]) -> None:
    try:
        check_no_variables(values)
    except InvalidConfig as error:
        raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from None


def _changes(
    image: MetadataImage,
    resource: _Resource,
    new_values: Mapping[str, str],
    named: Iterable[str],
    config: BrokerConfig,
    users: Users,
) -> list[ConfigRecord]:
    """The records that change the current configs to `new_values`, after validating them."""
    key = ConfigResource(resource.resource_type, resource.resource_name)
    current = image.configs.get(key, {})
    named = list(named)
    if key.type != ResourceType.BROKER:
        _check_no_variables({name: new_values[name] for name in named if name in new_values})
    if key.type == ResourceType.TOPIC:
        new_values = settle_claim(key.name, new_values, current, users=users.get(key.name))
        # Stored values that are invalid and are not changed do not prevent other changes.
        skipped = find_invalid_overrides(current).keys() - set(named)
        checked = {name: value for name, value in new_values.items() if name not in skipped}
        try:
            validate_topic_configs(checked, config)
        except InvalidConfig as error:
            raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from None
        check_on_demand_max(key.name, new_values, current)
        check_modes(image, new_values)
    elif key.type == ResourceType.BROKER:
        try:
            validate_dynamic(new_values, changed_names=named, whole_cluster=not key.name)
        except InvalidInput as error:
            raise Rejected(ErrorCode.INVALID_REQUEST, str(error)) from None
        check_min_isr(image, key, new_values)
    elif key.type == ResourceType.GROUP:
        check_group_configs(new_values, config)
    elif key.type == ResourceType.CLIENT_METRICS:
        check_client_metrics_configs(new_values)
    # Broker configs are written even if their value is unchanged: the record makes the broker
    # reload the files that they name (keystores).
    repeated = {name for name in named if key.type == ResourceType.BROKER}
    changed = {
        name: value
        for name, value in new_values.items()
        if current.get(name) != value or name in repeated
    }
    removed = [name for name in current if name not in new_values]
    return [
        ConfigRecord(resource_type=key.type, resource_name=key.name, name=name, value=value)
        for name, value in [*changed.items(), *((name, None) for name in removed)]
    ]
