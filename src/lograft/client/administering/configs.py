"""Settings of topics, brokers and groups; how topics are replicated."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from lograft.client.administering.request_driver import Destinations, RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, WrongUse, broker_error, raise_for
from lograft.client.network import Node
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
    """The numbers are those on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    kind: ResourceKind
    #: A broker's id as text; "" means all brokers together.
    name: str

    @property
    def is_one_broker(self) -> bool:
        return self.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and bool(self.name)


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those on the wire.

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
    """What kind of value a setting has."""

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
    """Another place that a value may come from.

    orders = topic_resource("orders")
    found = (await admin.describe_configs([orders], synonyms=True))[orders]
    synonyms: tuple[ConfigSynonym, ...] = found["segment.bytes"].synonyms
    print([(one.name, one.value) for one in synonyms])
    """

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    #: None: there is none, or it is sensitive.
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str | None
    #: Where else the value could come from, the first wins.
    synonyms: tuple[ConfigSynonym, ...]


class Operation(IntEnum):
    """What to do with a setting; the numbers are those on the wire.

    change = ConfigChange("cleanup.policy", "compact", Operation.APPEND)
    await admin.alter_configs({topic_resource("orders"): [change]})
    """

    SET = 0
    DELETE = 1
    #: Of settings that are lists.
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    value: str | None
    operation: Operation = Operation.SET


def topic_resource(name: str) -> ConfigResource:
    """A topic's settings."""
    return ConfigResource(ResourceKind.TOPIC, name)


def broker_resource(broker: int | None = None) -> ConfigResource:
    """None: what holds for all brokers.

    print(len(await admin.describe_configs([broker_resource(1), broker_resource()])))
    """
    return ConfigResource(ResourceKind.BROKER, "" if broker is None else str(broker))


def group_resource(name: str) -> ConfigResource:
    """A group's settings.

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
                        resource_type=one.kind,
                        resource_name=one.name,
                        configuration_keys=None if names is None else list(as_iterable(names)),
                    )
                    for one in items
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            ),
            DescribeConfigsResponse,
        )
        return {_resource(one): _entries(one) for one in response.results}

    return await driver.results_of(resources, _config_locator(driver, driver.any_node), send)


async def describe_skipped_configs(
    driver: RequestDriver, brokers: Iterable[int]
) -> dict[int, tuple[str, ...]]:
    async def send(
        node: Node | None, items: Sequence[ConfigResource]
    ) -> dict[ConfigResource, tuple[str, ...] | ClientError]:
        response = await driver.send(
            node,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=each.kind,
                        resource_name=each.name,
                        configuration_keys=["node.id"],
                    )
                    for each in items
                ]
            ),
            DescribeConfigsResponse,
        )
        return {
            _resource(each): broker_error(
                each.error_code, f"broker {each.resource_name}", each.error_message
            )
            if each.error_code
            else tuple(each.skipped_values)
            for each in response.results
        }

    found = await driver.results_of(
        [broker_resource(broker) for broker in brokers],
        _config_locator(driver, driver.any_node),
        send,
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
            resources=[_altered(one, changes[one]) for one in items],
            validate_only=validate_only,
        )
        response = await driver.send(node, request, IncrementalAlterConfigsResponse)
        return {
            _resource(one): broker_error(
                one.error_code,
                f"{_resource(one).kind.name.lower()} {one.resource_name!r}",
                one.error_message,
            )
            if one.error_code
            else None
            for one in response.responses
        }

    await driver.results_of(
        changes, _config_locator(driver, driver.find_controller, alters=True), send
    )


async def list_config_resources(
    driver: RequestDriver, kinds: Iterable[ResourceKind] = ()
) -> list[ConfigResource]:
    wanted = [int(kind) for kind in kinds]
    response = await driver.result_of(
        ListConfigResourcesRequest(resource_types=wanted),
        ListConfigResourcesResponse,
        lambda found: raise_for(found.error_code, "settings"),
        at_least=1 if wanted else 0,
    )
    return [
        ConfigResource(ResourceKind(one.resource_type), one.resource_name)
        for one in response.config_resources
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
        raise WrongUse("alter_replication changes nothing: give a mode, replicas or both")
    changes = []
    if mode is not None and partitions:
        overrides = await _find_mode_overrides(driver, topic) | dict.fromkeys(partitions, mode)
        words = ",".join(f"{index}:{word}" for index, word in sorted(overrides.items()))
        changes.append(ConfigChange(MODE_OF_PARTITIONS, words))
    elif mode is not None:
        changes.append(ConfigChange(MODE, mode))
        changes.append(ConfigChange(MODE_OF_PARTITIONS, None, Operation.DELETE))
    await driver.result_of(
        IncrementalAlterConfigsRequest(
            resources=[_altered(topic_resource(topic), changes)],
            replication_factor=replicas or -1,
            partitions=sorted(partitions),
        ),
        IncrementalAlterConfigsResponse,
        lambda response: _raise_first(topic, response.responses),
        lookup=driver.find_controller,
        at_least=1,
    )


async def _find_mode_overrides(driver: RequestDriver, topic: str) -> dict[int, str]:
    resource = topic_resource(topic)
    found = await describe_configs(driver, [resource], names=[MODE_OF_PARTITIONS])
    entry = found[resource].get(MODE_OF_PARTITIONS)
    words = ((entry.value if entry else None) or "").split(",")
    pairs = (word.partition(":") for word in words if word)
    return {int(index): mode for index, _, mode in pairs}


def _config_locator(
    driver: RequestDriver, elsewhere: Callable[[Sequence[str]], Any], *, alters: bool = False
) -> Callable[[Sequence[ConfigResource]], Any]:
    """Each node answers for its own settings and loggers. With bootstrap.controllers, as in
    Kafka, the active controller changes the settings of every node."""
    asks_active = alters and driver.uses_controllers

    def is_own(one: ConfigResource) -> bool:
        return one.is_one_broker and not (asks_active and one.kind is ResourceKind.BROKER)

    async def locate(items: Sequence[ConfigResource]) -> Destinations[ConfigResource]:
        nodes = [int(one.name) for one in items if is_own(one)]
        known = await driver.find_brokers(nodes) if nodes else {}
        place = None
        if len(nodes) < len(items):
            place = (await elsewhere([""]))[""]
        return {one: known[int(one.name)] if is_own(one) else place for one in items}

    return locate


def _resource(told: DescribeConfigsResult | AlterConfigsResourceResponse) -> ConfigResource:
    return ConfigResource(ResourceKind(told.resource_type), told.resource_name)


def _entries(told: DescribeConfigsResult) -> dict[str, ConfigEntry] | ClientError:
    if told.error_code:
        kind = ResourceKind(told.resource_type).name.lower()
        return broker_error(
            told.error_code, f"settings of {kind} {told.resource_name!r}", told.error_message
        )
    return {one.name: _entry(one) for one in told.configs}


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        _source(told.config_source),
        told.read_only,
        told.is_sensitive,
        ConfigType(told.config_type) if told.config_type in set(ConfigType) else ConfigType(0),
        told.documentation,
        tuple(ConfigSynonym(one.name, one.value, _source(one.source)) for one in told.synonyms),
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in set(ConfigSource) else ConfigSource.UNKNOWN


def _altered(resource: ConfigResource, changes: Iterable[ConfigChange]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=one.name, config_operation=one.operation, value=one.value)
            for one in changes
        ],
    )


def _raise_first(topic: str, told: Sequence[AlterConfigsResourceResponse]) -> None:
    for one in told:
        raise_for(one.error_code, f"topic {topic!r}", one.error_message)
