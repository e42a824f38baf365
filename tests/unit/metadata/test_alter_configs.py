from collections.abc import Callable
from uuid import UUID

import pytest

from lograft.metadata.configs import alter_configs, incremental_alter_configs
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.wire.messages import alter_configs as replacing
from lograft.wire.messages import incremental_alter_configs as incremental
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.topic_record import TopicRecord

TOPIC, BROKER, LOGGER, GROUP = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.GROUP,
)
METRICS = ResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


@pytest.fixture
def image(cluster: Callable[..., MetadataImage], apply: Callable[..., None]) -> MetadataImage:
    image = cluster(1)
    apply(
        image,
        [
            TopicRecord(name="t", topic_id=UUID(int=7)),
            ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
            ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="delete"),
        ],
    )
    return image


def alter(
    image: MetadataImage, config: BrokerConfig, kind: int, name: str, *changes: Change
) -> tuple[ErrorCode, dict[str, str | None]]:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=change, config_operation=operation, value=value)
            for change, operation, value in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    outcome = incremental_alter_configs(image, request, config=config)
    (response,) = outcome.reply.responses
    assert bool(response.error_message) == bool(response.error_code)
    written = {r.name: r.value for r in outcome.records if isinstance(r, ConfigRecord)}
    return ErrorCode(response.error_code), written


def test_a_topics_settings_change_one_by_one(image: MetadataImage, config: BrokerConfig) -> None:
    code, written = alter(
        image,
        config,
        TOPIC,
        "t",
        ("retention.ms", DELETE, None),
        ("flush.ms", SET, "10"),
        ("cleanup.policy", APPEND, "compact"),
    )
    assert code == ErrorCode.NONE
    assert written == {"retention.ms": None, "flush.ms": "10", "cleanup.policy": "delete,compact"}


def test_an_invalid_stored_value_does_not_prevent_other_changes(
    image: MetadataImage, config: BrokerConfig, apply: Callable[..., None]
) -> None:
    small = ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="1000")
    apply(image, [small])
    change = alter(image, config, TOPIC, "t", ("retention.ms", SET, "9"))
    assert change == (ErrorCode.NONE, {"retention.ms": "9"})
    again = alter(image, config, TOPIC, "t", ("segment.bytes", SET, "1000"))
    assert again == (ErrorCode.INVALID_CONFIG, {})
    removal = alter(image, config, TOPIC, "t", ("segment.bytes", DELETE, None))
    assert removal == (ErrorCode.NONE, {"segment.bytes": None})


def test_what_is_so_already_is_not_written(image: MetadataImage, config: BrokerConfig) -> None:
    assert alter(image, config, TOPIC, "t", ("retention.ms", SET, "5")) == (ErrorCode.NONE, {})
    assert alter(image, config, TOPIC, "t", ("flush.ms", DELETE, None)) == (ErrorCode.NONE, {})
    # A broker reads its files again when the setting is set to the same value.
    again = alter(image, config, BROKER, "1", ("log.cleaner.threads", SET, "2"))
    assert again == (ErrorCode.NONE, {"log.cleaner.threads": "2"})


def test_subtract_takes_words_away(image: MetadataImage, config: BrokerConfig) -> None:
    changes: list[Change] = [("cleanup.policy", APPEND, "compact,delete")]
    assert alter(image, config, TOPIC, "t", *changes)[1] == {"cleanup.policy": "delete,compact"}
    image.configs[next(iter(image.configs))]["cleanup.policy"] = "delete,compact"
    changes = [("cleanup.policy", SUBTRACT, "delete")]
    assert alter(image, config, TOPIC, "t", *changes)[1] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "nope", [("flush.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", [("nope", SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("flush.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("flush.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("flush.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("flush.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("flush.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST),
        (BROKER, "7", [("log.cleaner.threads", SET, "1")], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", [("log.cleaner.threads", SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("process.roles", SET, "broker")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("log.cleaner.threads", SET, "x")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "", [("flush.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "no name", [("flush.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (GROUP, "g", [("nope", SET, "1")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "99999")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("streams.num.standby.replicas", SET, "9")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("share.auto.offset.reset", SET, "foo")], ErrorCode.INVALID_CONFIG),
        (METRICS, "m", [("nope", SET, "1")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("interval.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("interval.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (METRICS, "m", [("match", SET, "foo")], ErrorCode.INVALID_CONFIG),
        (METRICS, "m", [("match", SET, "client_id=a[")], ErrorCode.INVALID_CONFIG),
        (LOGGER, "1", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
        (GROUP, "", [("x", SET, "1")], ErrorCode.INVALID_REQUEST),
        (99, "x", [("x", SET, "1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(
    image: MetadataImage,
    config: BrokerConfig,
    kind: int,
    name: str,
    changes: list[Change],
    code: ErrorCode,
) -> None:
    assert alter(image, config, kind, name, *changes) == (code, {})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1", "must be at least group.consumer.min.session.timeout.ms=45000."),
        ("99999", "must be at most group.consumer.max.session.timeout.ms=60000."),
    ],
)
def test_limit_of_a_group_setting_is_named(
    image: MetadataImage, config: BrokerConfig, value: str, message: str
) -> None:
    change = incremental.AlterableConfig(
        name="consumer.session.timeout.ms", config_operation=SET, value=value
    )
    resource = incremental.AlterConfigsResource(
        resource_type=GROUP, resource_name="g", configs=[change]
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = incremental_alter_configs(image, request, config=config).reply.responses
    assert response.error_message == f"consumer.session.timeout.ms={value} {message}"


def test_all_brokers_and_one_broker_have_settings(
    image: MetadataImage, config: BrokerConfig
) -> None:
    for name in ("", "1"):
        assert alter(image, config, BROKER, name, ("log.retention.ms", SET, "9")) == (
            ErrorCode.NONE,
            {"log.retention.ms": "9"},
        )
    for kind, name, text in (
        (GROUP, "consumer.session.timeout.ms", "50000"),
        (GROUP, "share.auto.offset.reset", "by_duration:PT1H"),
        (METRICS, "match", "client_id=a.*,client_source_port=1"),
        (METRICS, "interval.ms", "100"),
    ):
        assert alter(image, config, kind, "x", (name, SET, text)) == (ErrorCode.NONE, {name: text})


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_heartbeats_of_a_group_are_shorter_than_its_session(
    image: MetadataImage, config: BrokerConfig, kind: str
) -> None:
    wide = broker_config({**config.raw, f"group.{kind}.max.heartbeat.interval.ms": "60000"})
    heartbeat = (f"{kind}.heartbeat.interval.ms", SET, "45000")
    for session_ms, code in (
        ("45000", ErrorCode.INVALID_CONFIG),
        ("45001", ErrorCode.NONE),
    ):
        session = (f"{kind}.session.timeout.ms", SET, session_ms)
        assert alter(image, wide, GROUP, "g", heartbeat, session)[0] == code
    # The session is that of the broker.
    assert alter(image, wide, GROUP, "g", heartbeat)[0] == ErrorCode.INVALID_CONFIG


def test_alter_configs_replaces_what_was_set(image: MetadataImage, config: BrokerConfig) -> None:
    def replaced(**more: bool) -> dict[str, str | None]:
        resource = replacing.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[replacing.AlterableConfig(name="flush.ms", value="7")],
        )
        request = replacing.AlterConfigsRequest(resources=[resource], **more)
        outcome = alter_configs(image, request, config=config)
        assert [response.error_code for response in outcome.reply.responses] == [0]
        return {r.name: r.value for r in outcome.records if isinstance(r, ConfigRecord)}

    assert replaced() == {"flush.ms": "7", "retention.ms": None, "cleanup.policy": None}
    assert replaced(validate_only=True) == {}


def test_a_resource_named_twice_is_refused(image: MetadataImage, config: BrokerConfig) -> None:
    resource = replacing.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    request = replacing.AlterConfigsRequest(resources=[resource, resource])
    outcome = alter_configs(image, request, config=config)
    assert [r.error_code for r in outcome.reply.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert outcome.records == ()
