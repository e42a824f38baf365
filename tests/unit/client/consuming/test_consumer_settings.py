"""Validation of the consumer's settings, and the values derived from them."""

from typing import Any

import pytest

from lograft.client.consuming.reset_policy import EARLIEST, LATEST, ResetPolicy, parse_duration_ms
from lograft.client.consuming.settings import ConsumerSettings
from lograft.model.errors import InvalidConfig

JAVA = "org.apache.kafka.clients.consumer."


def read(**settings: Any) -> ConsumerSettings:
    return ConsumerSettings.read({"bootstrap.servers": "a:1"}, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_id": ""}, r"group\.id is empty"),
        ({"enable_auto_commit": True}, r"group\.id is not set"),
        ({"group_protocol": "streams"}, "must be classic or consumer"),
        ({"group_remote_assignor": "uniform"}, r"requires group\.protocol=consumer"),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 9_000},
            "session.timeout.ms cannot be set with group.protocol=consumer",
        ),
        ({"heartbeat_interval_ms": 45_000}, "must be less than session.timeout.ms"),
        ({"partition_assignment_strategy": "range,mine"}, "must be a list of range, roundrobin"),
        ({"partition_assignment_strategy": "range,range"}, "without duplicates"),
        ({"auto_offset_reset": "by_duration:3d"}, "a duration such as P3D"),
        ({"auto_offset_reset": "newest"}, "must be latest, earliest, none"),
        ({"isolation_level": "committed"}, "must be one of read_committed"),
        ({"group_instance_id": ""}, "must not be empty"),
        ({"share_acquire_mode": "record_limit"}, "share groups"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read(**settings)


def test_assignors_by_class_name_and_short_name() -> None:
    assert read().assignors() == ("range", "cooperative-sticky")
    names = f"{JAVA}StickyAssignor, roundrobin"
    assert read(partition_assignment_strategy=names).assignors() == ("sticky", "roundrobin")


def test_auto_commit_is_enabled_by_default_with_a_group() -> None:
    assert not read().auto_commits
    assert read(group_id="g").auto_commits
    assert not read(group_id="g", enable_auto_commit="false").auto_commits


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P3D", 3 * 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.001s", 1),
    ],
)
def test_durations_are_parsed(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "3D", "P3", "P1DT", "-P1D", "P1M", "PT1X"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_ms(text)


def test_timestamps_of_reset_policies() -> None:
    assert ResetPolicy.parse("latest").timestamp(5) == LATEST
    assert ResetPolicy.parse("earliest").timestamp(5) == EARLIEST
    assert ResetPolicy.parse("none").timestamp(5) is None
    assert ResetPolicy.parse("by_duration:PT1S").timestamp(5_000) == 4_000
    # Timestamps are not negative.
    assert ResetPolicy.parse("by_duration:P1D").timestamp(5_000) == 0
