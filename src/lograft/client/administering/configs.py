"""Requests about the settings of topics, brokers and groups, and the replication of topics."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from lograft.client.administering.request_driver import Destinations, RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, WrongUse, broker_error, raise_for
from lograft.client.network import Node
from lograft.model.seams import Address
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

Mode = Literal["isr", "raft"]
MODE: Final = "replication.mode"
MODE_OF_PARTITIONS: Final = "replication.mode.partitions"


class ResourceKind(IntEnum):
    """The values are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_BROKER_ID: Final = re.compile(r"-?[0-9]{1,10}")


class ConfigResource(NamedTuple):
    kind: ResourceKind
    #: A broker id as text; "" for the defaults of all brokers.
    name: str

    @property
    def is_single_broker(self) -> bool:
        return self.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and bool(self.name)


class ConfigSource(IntEnum):
    """The source of a value; the members have the values of the protocol.

    found = (await admin.describe_configs([topic_resource("orders")]))[topic_resource("orders")]
    assert found["retention.ms"].source is ConfigSource.DEFAULT
    """

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a setting."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A setting that may provide the value of another one.

    orders = topic_resource("orders")
    found = (await admin.describe_configs([orders], synonyms=True))[orders]
    synonyms: tuple[ConfigSynonym, ...] = found["segment.bytes"].synonyms
    print([(synonym.name, synonym.value) for synonym in synonyms])
    """

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    #: None: the setting has no value, or is sensitive.
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str | None
    #: All sources of the value, in order of precedence.
    synonyms: tuple[ConfigSynonym, ...]


class Operation(IntEnum):
    """The kind of a change; the members have the values of the protocol.

    change = ConfigChange("cleanup.policy", "compact", Operation.APPEND)
    await admin.alter_configs({topic_resource("orders"): [change]})
    """

    SET = 0
    DELETE = 1
    #: APPEND and SUBTRACT are for lists.
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    value: str | None
    operation: Operation = Operation.SET


def topic_resource(name: str) -> ConfigResource:
    """Returns the resource of a topic."""
    return ConfigResource(ResourceKind.TOPIC, name)


def broker_resource(broker: int | None = None) -> ConfigResource:
    """Returns the resource of a broker; None: of the defaults of all brokers.

    print(len(await admin.describe_configs([broker_resource(1), broker_resource()])))
    """
    return ConfigResource(ResourceKind.BROKER, "" if broker is None else str(broker))


def group_resource(name: str) -> ConfigResource:
    """Returns the resource of a group.

    found = await admin.describe_configs([group_resource("billing")])
    assert isinstance(next(iter(found[group_resource("billing")].values())).type, ConfigType)
    """
    return ConfigResource(ResourceKind.GROUP, name)


async def describe_configs(
    driver: RequestDriver,
    resources: Iterable[ConfigResource],
    *,
    names: Collection[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    async def send(
        node: Node | None, items: Sequence[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | ClientError]:
        response = await driver.send(
            node,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configuration_keys=None if names is None else list(as_iterable(names)),
                    )
                    for resource in items
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            ),
            DescribeConfigsResponse,
        )
        return {_resource_of(result): _entries_of(result) for result in response.results}

    return await driver.results_of(resources, _config_lookup(driver, driver.any_node), send)


async def describe_skipped_configs(
    driver: RequestDriver, brokers: Iterable[int], controllers: Mapping[int, Address]
) -> dict[int, tuple[str, ...]]:
    async def find_nodes(items: Sequence[ConfigResource]) -> Destinations[ConfigResource]:
        nodes = {item: _broker_of(item) for item in items}
        ids = [node for node in nodes.values() if node not in controllers]
        known = await driver.find_brokers(ids) if ids else {}
        return {
            item: controllers[node] if node in controllers else known[node]
            for item, node in nodes.items()
        }

    async def send(
        node: Node | None, items: Sequence[ConfigResource]
    ) -> dict[ConfigResource, tuple[str, ...] | ClientError]:
        response = await driver.send(
            node,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configuration_keys=["node.id"],
                    )
                    for resource in items
                ]
            ),
            DescribeConfigsResponse,
        )
        return {
            _resource_of(result): broker_error(
                result.error_code, f"broker {result.resource_name}", result.error_message
            )
            if result.error_code
            else tuple(result.skipped_values)
            for result in response.results
        }

    found = await driver.results_of(
        [broker_resource(node) for node in (*brokers, *controllers)], find_nodes, send
    )
    return {int(resource.name): skipped for resource, skipped in found.items()}


async def alter_configs(
    driver: RequestDriver,
    changes: Mapping[ConfigResource, Iterable[ConfigChange]],
    *,
    validate_only: bool = False,
) -> None:
    async def send(
        node: Node | None, items: Sequence[ConfigResource]
    ) -> dict[ConfigResource, ClientError | None]:
        request = IncrementalAlterConfigsRequest(
            resources=[_alteration_of(resource, changes[resource]) for resource in items],
            validate_only=validate_only,
        )
        response = await driver.send(node, request, IncrementalAlterConfigsResponse)
        return {
            _resource_of(result): broker_error(
                result.error_code,
                _name_resource(_resource_of(result)),
                result.error_message,
            )
            if result.error_code
            else None
            for result in response.responses
        }

    await driver.results_of(
        changes, _config_lookup(driver, driver.find_controller, is_alteration=True), send
    )


async def list_config_resources(
    driver: RequestDriver, kinds: Iterable[ResourceKind] = ()
) -> list[ConfigResource]:
    types = [int(kind) for kind in kinds]
    response = await driver.result_of(
        ListConfigResourcesRequest(resource_types=types),
        ListConfigResourcesResponse,
        lambda response: raise_for(response.error_code, "settings"),
        at_least=1 if types else 0,
    )
    return [
        ConfigResource(ResourceKind(resource.resource_type), resource.resource_name)
        for resource in response.config_resources
    ]


async def alter_replication(
    driver: RequestDriver,
    topic: str,
    *,
    mode: Mode | None = None,
    replicas: int | None = None,
    partitions: Collection[int] = (),
) -> None:
    if mode is None and replicas is None:
        raise WrongUse("alter_replication has nothing to change: pass mode, replicas or both")
    changes = []
    if mode is not None and partitions:
        overrides = await _find_mode_overrides(driver, topic) | dict.fromkeys(partitions, mode)
        value = ",".join(f"{index}:{name}" for index, name in sorted(overrides.items()))
        changes.append(ConfigChange(MODE_OF_PARTITIONS, value))
    elif mode is not None:
        changes.append(ConfigChange(MODE, mode))
        changes.append(ConfigChange(MODE_OF_PARTITIONS, None, Operation.DELETE))
    await driver.result_of(
        IncrementalAlterConfigsRequest(
            resources=[_alteration_of(topic_resource(topic), changes)],
            replication_factor=replicas or -1,
            partitions=sorted(partitions),
        ),
        IncrementalAlterConfigsResponse,
        lambda response: _raise_first_error(topic, response.responses),
        lookup=driver.find_controller,
        at_least=1,
    )


async def _find_mode_overrides(driver: RequestDriver, topic: str) -> dict[int, str]:
    resource = topic_resource(topic)
    found = await describe_configs(driver, [resource], names=[MODE_OF_PARTITIONS])
    entry = found[resource].get(MODE_OF_PARTITIONS)
    overrides = ((entry.value if entry else None) or "").split(",")
    pairs = (override.partition(":") for override in overrides if override)
    return {int(index): mode for index, _, mode in pairs}


def _config_lookup(
    driver: RequestDriver, otherwise: Callable[[Sequence[str]], Any], *, is_alteration: bool = False
) -> Callable[[Sequence[ConfigResource]], Any]:
    """Returns the lookup of the nodes that serve resources: each node its own settings and loggers,
    `otherwise` the others. With bootstrap.controllers the active controller changes the settings of
    all nodes, as in Kafka."""
    uses_active_controller = is_alteration and driver.uses_controllers

    def is_own(resource: ConfigResource) -> bool:
        return resource.is_single_broker and not (
            uses_active_controller and resource.kind is ResourceKind.BROKER
        )

    async def look_up(items: Sequence[ConfigResource]) -> Destinations[ConfigResource]:
        nodes = [_broker_of(resource) for resource in items if is_own(resource)]
        known = await driver.find_brokers(nodes) if nodes else {}
        other = None
        if len(nodes) < len(items):
            other = (await otherwise([""]))[""]
        return {
            resource: known[_broker_of(resource)] if is_own(resource) else other
            for resource in items
        }

    return look_up


def _broker_of(resource: ConfigResource) -> int:
    if not _BROKER_ID.fullmatch(resource.name):
        raise WrongUse(f"{resource.name!r} is not a broker id, which is a number such as 1")
    return int(resource.name)


def _resource_of(result: DescribeConfigsResult | AlterConfigsResourceResponse) -> ConfigResource:
    return ConfigResource(ResourceKind(result.resource_type), result.resource_name)


def _name_resource(resource: ConfigResource) -> str:
    """The resource in messages; the broker with an empty name is the default of all brokers."""
    if resource.kind is ResourceKind.BROKER and not resource.name:
        return "the default of all brokers"
    return f"{resource.kind.name.lower()} {resource.name!r}"


def _entries_of(result: DescribeConfigsResult) -> dict[str, ConfigEntry] | ClientError:
    if result.error_code:
        name = _name_resource(_resource_of(result))
        return broker_error(result.error_code, f"settings of {name}", result.error_message)
    return {config.name: _entry_of(config) for config in result.configs}


def _entry_of(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _source_of(config.config_source),
        config.read_only,
        config.is_sensitive,
        ConfigType(config.config_type)
        if config.config_type in set(ConfigType)
        else ConfigType.UNKNOWN,
        config.documentation,
        tuple(
            ConfigSynonym(synonym.name, synonym.value, _source_of(synonym.source))
            for synonym in config.synonyms
        ),
    )


def _source_of(number: int) -> ConfigSource:
    return ConfigSource(number) if number in set(ConfigSource) else ConfigSource.UNKNOWN


def _alteration_of(
    resource: ConfigResource, changes: Iterable[ConfigChange]
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
            for change in changes
        ],
    )


def _raise_first_error(topic: str, results: Sequence[AlterConfigsResourceResponse]) -> None:
    for result in results:
        raise_for(result.error_code, f"topic {topic!r}", result.error_message)
