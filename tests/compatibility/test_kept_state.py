"""A folder of Apache Kafka with every type of group and other state that Lograft only stores:
Lograft serves the groups that it supports, keeps the rest, and Kafka finds all of it again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lograft.wire.batches import iterate_headers, read_records
from lograft.wire.record_frames import GROUPS, decode_coordinator_key
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.kept_state import (
    PARTITIONS,
    SERVED_GROUPS,
    SHARE_GROUPS,
    STREAMS_GROUPS,
    STREAMS_OFFSET,
    TOPIC,
    add_sasl_listener,
    commit_often,
    described_tokens,
    fill,
    kafka_settings,
    shown_by_tools,
)
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.members import PROTOCOLS, all_of, joined, poll_until
from tests.compatibility.raw_requests import connect
from tests.compatibility.servers import Server, compares_two
from tests.compatibility.unsupported_groups import answers_under, await_coordinator, listed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), compares_two()]
PATIENCE_SECONDS: Final = 60.0
OFFSETS: Final = "__consumer_offsets-0"
METADATA: Final = "__cluster_metadata-0"
LOGRAFT_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
NOT_FOUND: Final = "GROUP_ID_NOT_FOUND"
#: About 4 kB each: more than one segment of 1 MiB.
LONG_COMMITS: Final = 300


def test_kafka_finds_everything_again(
    new_server: Callable[..., Server], java_tools: JavaTools, tmp_path: Path
) -> None:
    first = new_server("kafka", settings=kafka_settings())
    sasl_port = add_sasl_listener(first)
    with first.started():
        fill(first, java_tools, tmp_path, sasl_port=sasl_port)
        with connect(first) as connection:
            groups = listed(connection)
            answers = {group: answers_under(connection, group, TOPIC) for group in SHARE_GROUPS}
        shown = shown_by_tools(first, java_tools)
        tokens = described_tokens(first, java_tools, tmp_path, sasl_port=sasl_port)
    kept = unserved_records(first)

    second = new_server("lograft", settings=LOGRAFT_SETTINGS).using_data_of(first)
    snapshots = {path.name for path in (second.data / METADATA).glob("*.checkpoint")}
    with second.started():
        check_groups(second, groups, answers)
        serve_groups(second)
        create_topic(second.bootstrap, "of-lograft")
        commit_often(second, "long", count=LONG_COMMITS)
        wait_for_compaction(second)
    assert {path.name for path in (second.data / METADATA).glob("*.checkpoint")} - snapshots
    assert unserved_records(second) == kept
    log = second.log_path.read_text()
    assert log.count("share and 2 streams group(s)") == 1
    for what in ("ACLs are", "delegation token is"):
        assert log.count(f"{what} stored but not") == 1

    third = new_server("kafka", settings=kafka_settings()).using_data_of(second)
    sasl_port = add_sasl_listener(third)
    with third.started():
        found = shown_by_tools(third, java_tools)
        long = [line for line in found["groups"].splitlines() if line.startswith("long ")]
        assert len(long) == 1
        found["groups"] = found["groups"].replace(f"{long[0]}\n", "")
        assert found == shown
        assert described_tokens(third, java_tools, tmp_path, sasl_port=sasl_port) == tokens
        serve_groups(third)


def check_groups(
    server: Server, groups: dict[str, tuple[str, str, str]], answers: dict[str, dict[str, Any]]
) -> None:
    with connect(server) as connection:
        await_coordinator(connection, SHARE_GROUPS[0])
        found = {group: answers_under(connection, group, TOPIC) for group in SHARE_GROUPS}
        assert found == answers
        for group in STREAMS_GROUPS:
            of_streams = answers_under(connection, group, TOPIC)
            assert of_streams["join"] == "INCONSISTENT_GROUP_PROTOCOL"
            assert of_streams["consumer join"][0] == NOT_FOUND
            assert of_streams["describe consumer"][0] == NOT_FOUND
            assert of_streams["commit v9 in -1"] == [(NOT_FOUND, None)]
            assert of_streams["fetch offsets in -1"] == ("NONE", [("NONE", STREAMS_OFFSET)])
        assert listed(connection) == groups
        assert set(listed(connection, types_filter=["streams"])) == set(STREAMS_GROUPS)


def serve_groups(server: Server) -> None:
    for group in SERVED_GROUPS:
        with joined(server.bootstrap, group, [TOPIC], PROTOCOLS[group]) as member:
            poll_until(lambda: member.owned == all_of(TOPIC, PARTITIONS), member)
            assert (member.committed(TOPIC, 0), member.committed(TOPIC, 1)) == (4, 7)


def wait_for_compaction(server: Server) -> None:
    """Waits until the cleaner has cleaned a closed segment of `__consumer_offsets`."""
    checkpoint = server.data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        entries = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        cleaned = [line.split()[2] for line in entries if line.startswith("__consumer_offsets 0 ")]
        if cleaned and int(cleaned[0]) > 0:
            return
        assert time.monotonic() < deadline, server.log_tail()
        time.sleep(0.1)


def unserved_records(server: Server) -> dict[bytes, bytes]:
    """The newest record of every key that belongs to a share or streams group."""
    newest: dict[bytes, bytes | None] = {}
    for file in sorted((server.data / OFFSETS).glob("*.log")):
        data = memoryview(file.read_bytes())
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_bytes]
            if header.is_control:
                continue
            for record in read_records(batch, bytes_max=1 << 20):
                key = bytes(record.key or b"")
                name = type(decode_coordinator_key(GROUPS, key)).__name__
                if name.startswith(("ShareGroup", "StreamsGroup")):
                    newest[key] = None if record.value is None else bytes(record.value)
    assert newest
    return {key: value for key, value in newest.items() if value is not None}
