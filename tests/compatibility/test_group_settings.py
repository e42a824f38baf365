"""Settings of groups and the feature group.version, set by Kafka's tools and observed by
members."""

from collections.abc import Callable

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Server, kinds_under_test
from tests.compatibility.test_same_groups import await_coordinator

pytestmark = pytest.mark.interop


def joined(server: Server, group: str) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[],
        topic_partitions=[],
    )
    with connect(server) as connection:
        answer = ask(connection, request, 1)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def test_config_command_on_a_group(
    server: Server, java_tools: JavaTools, new_topic: Callable[[], str]
) -> None:
    group = new_topic()
    await_coordinator(server)
    address = ("--bootstrap-server", server.bootstrap, "--entity-type", "groups")
    entity = (*address, "--entity-name", group)

    def alter(*change: str) -> tuple[int, str]:
        run = java_tools.run("ConfigCommand", *entity, "--alter", *change)
        return run.code, run.text

    before = joined(server, group).heartbeat_interval_ms
    wanted = "consumer.heartbeat.interval.ms=7000,consumer.session.timeout.ms=50000"
    assert alter("--add-config", wanted)[0] == 0
    shown = java_tools.check("ConfigCommand", *entity, "--describe").text
    assert "consumer.heartbeat.interval.ms=7000" in shown
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in shown
    assert joined(server, group).heartbeat_interval_ms == 7_000
    assert group in java_tools.check("ConfigCommand", *address, "--describe").text
    for refused in (
        "consumer.session.timeout.ms=60001",  # group.consumer.max.session.timeout.ms
        "consumer.session.timeout.ms=44999",
        "consumer.heartbeat.interval.ms=15001",
        "consumer.heartbeat.interval.ms=often",
        "consumer.no.such.setting=1",
    ):
        code, text = alter("--add-config", refused)
        assert code == 1, (refused, text)
    assert joined(server, group).heartbeat_interval_ms == 7_000
    assert alter("--delete-config", "consumer.heartbeat.interval.ms")[0] == 0
    assert joined(server, group).heartbeat_interval_ms == before


@pytest.mark.parametrize("kind", kinds_under_test())
def test_group_version_decides(
    kind: str, new_server: Callable[..., Server], java_tools: JavaTools
) -> None:
    """Without it no member can join with the consumer protocol, as ApiVersions shows."""
    server = new_server(kind)
    with server.started():
        await_coordinator(server)
        assert joined(server, "g").error_code == 0
        assert finalized(server) == 1
        feature = ("FeatureCommand", "--bootstrap-server", server.bootstrap)
        shown = java_tools.check(*feature, "describe").text
        (line,) = (text for text in shown.splitlines() if "group.version" in text)
        assert line.split()[2:] == [
            *("SupportedMinVersion:", "0", "SupportedMaxVersion:", "1"),
            *("FinalizedVersionLevel:", "1", "Epoch:", line.split()[-1]),
        ]
        java_tools.check(*feature, "downgrade", "--feature", "group.version=0")
        assert finalized(server) == 0
        assert joined(server, "g").error_code == ErrorCode.UNSUPPORTED_VERSION
        java_tools.check(*feature, "upgrade", "--feature", "group.version=1")
        assert joined(server, "g").error_code == 0


def finalized(server: Server) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with connect(server) as connection:
        answer = ask(connection, request, 4)
    assert isinstance(answer, ApiVersionsResponse)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels.get("group.version", 0)
