from lograft.metadata.ignored_settings import (
    find_ignored_settings,
    find_stored_ignored_settings,
)
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType
from lograft.model.types import Epoch, Offset
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.no_op_record import NoOpRecord


def record(resource_type: ResourceType, owner: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=owner, name=name, value=value)


def test_settings_without_effect_are_named_with_their_owner() -> None:
    records = [
        NoOpRecord(),
        record(ResourceType.TOPIC, "a", "local.retention.ms", "5"),
        record(ResourceType.TOPIC, "a", "retention.ms", "5"),
        record(ResourceType.TOPIC, "b", "local.retention.ms", "-2"),
        record(ResourceType.TOPIC, "b", "remote.log.copy.disable", None),
        record(ResourceType.GROUP, "g", "share.session.timeout.ms", "50000"),
        record(ResourceType.GROUP, "g", "consumer.session.timeout.ms", "50000"),
        # The broker reports its own settings.
        record(ResourceType.BROKER, "1", "num.io.threads", "16"),
    ]
    assert find_ignored_settings(records) == [
        "local.retention.ms of topic a",
        "share.session.timeout.ms of group g",
    ]


def test_stored_settings_without_effect_are_counted_by_name() -> None:
    records = [
        *(record(ResourceType.TOPIC, f"t{n}", "local.retention.ms", "5") for n in range(7)),
        record(ResourceType.TOPIC, "t0", "retention.ms", "5"),
        record(ResourceType.TOPIC, "t0", "unknown.of.a.later.version", "5"),
        record(ResourceType.GROUP, "g", "share.session.timeout.ms", "50000"),
        record(ResourceType.BROKER, "1", "num.io.threads", "16"),
    ]
    image = MetadataImage()
    image.apply(records, offset=Offset(len(records) - 1), epoch=Epoch(1))
    assert find_stored_ignored_settings(image) == [
        "local.retention.ms of 7 topics (t0, t1, t2, t3, t4, …)",
        "share.session.timeout.ms of 1 group (g)",
    ]
