"""What a consumer cannot be told, and what it makes of the rest."""

from typing import Any

import pytest

from lograft.client.consuming.reset_policy import EARLIEST, LATEST, ResetPolicy, duration_ms
from lograft.client.consuming.settings import ConsumerSettings
from lograft.model.errors import InvalidConfig

JAVA = "org.apache.kafka.clients.consumer."


def read(**settings: Any) -> ConsumerSettings:
    return ConsumerSettings.read({"bootstrap.servers": "a:1"}, **settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"group_id": ""}, r"group\.id is empty"),
        ({"enable_auto_commit": True}, r"no group\.id"),
        ({"group_protocol": "streams"}, "must be classic or consumer"),
        ({"group_remote_assignor": "uniform"}, r"needs group\.protocol=consumer"),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 9_000},
            "session.timeout.ms cannot be set with group.protocol=consumer",
        ),
        ({"heartbeat_interval_ms": 45_000}, "must be less than session.timeout.ms"),
        ({"partition_assignment_strategy": "range,mine"}, "must name some of range, roundrobin"),
        ({"partition_assignment_strategy": "range,range"}, "each once"),
        ({"auto_offset_reset": "by_duration:3d"}, "a duration such as P3D"),
        ({"auto_offset_reset": "newest"}, "must be latest, earliest, none"),
        ({"isolation_level": "committed"}, "must be one of read_committed"),
        ({"group_instance_id": ""}, "must not be empty"),
        ({"share_acquire_mode": "record_limit"}, "share groups"),
    ],
)
def test_what_cannot_be(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        read(**settings)


def test_assignors_by_kafkas_names_and_ours() -> None:
    assert read().assignors() == ("range", "cooperative-sticky")
    names = f"{JAVA}StickyAssignor, roundrobin"
    assert read(partition_assignment_strategy=names).assignors() == ("sticky", "roundrobin")


def test_commits_are_automatic_where_there_is_a_group() -> None:
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
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "3D", "P3", "P1DT", "-P1D", "P1M", "PT1X"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text)


def test_where_policies_point() -> None:
    assert ResetPolicy.parse("latest").timestamp(5) == LATEST
    assert ResetPolicy.parse("earliest").timestamp(5) == EARLIEST
    assert ResetPolicy.parse("none").timestamp(5) is None
    assert ResetPolicy.parse("by_duration:PT1S").timestamp(5_000) == 4_000
    # Nothing is older than 1970.
    assert ResetPolicy.parse("by_duration:P1D").timestamp(5_000) == 0
