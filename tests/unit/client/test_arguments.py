"""Wrong arguments raise errors that explain them, and affect only the call that contains them."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client import (
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    SerializationFailed,
    TopicPartition,
    WrongUse,
    topic_resource,
)
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

PARTITION = TopicPartition("orders", 0)


def play(scenario: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Runs the scenario on one node with a topic, with the settings that clients need."""

    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("orders")
        servers = ",".join(map(str, cluster.bootstrap()))
        await scenario({"bootstrap_servers": servers, "runtime": cluster.client_runtime()})

    VirtualCluster(nodes=1, seed=2).play(main)


def as_json(_topic: str, value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        # Not b"orders": it has the hash of a topic that is known, and -bb forbids to compare them.
        (
            {"topic": b"bytes"},
            WrongUse,
            r"b'bytes' is not a topic name: topic names are of type str",
        ),
        ({"topic": "\ud800"}, WrongUse, "is not a topic name"),
        ({"timestamp_ms": 1.5}, WrongUse, "1.5 is not a timestamp: timestamp_ms is an integer"),
        ({"timestamp_ms": -1}, WrongUse, "-1 is not a timestamp"),
        ({"timestamp_ms": 1 << 63}, WrongUse, "is not a timestamp"),
        ({"headers": {"a": b"1"}}, WrongUse, r"'a' is not a header: use pairs such as"),
        ({"headers": [("a", "1")]}, WrongUse, r"\('a', '1'\) is not a header"),
        ({"headers": [(b"a", b"1")]}, WrongUse, r"\(b'a', b'1'\) is not a header"),
        ({"headers": [("\ud800", b"1")]}, WrongUse, "is not a header"),
        ({"headers": [("a", b"1", b"2")]}, WrongUse, "is not a header"),
        ({"key": 7}, SerializationFailed, "type int is neither bytes nor str: set a"),
        ({"value": {"a": 1}}, SerializationFailed, "its serializer returned str, not bytes"),
        ({"value": "\ud800"}, SerializationFailed, "surrogates not allowed|returned str"),
    ],
)
@scenario(play)
async def test_producer_rejects_bad_record_and_stays_usable(
    settings: dict[str, Any], /, record: dict[str, Any], error: type[Exception], text: str
) -> None:
    serializes: dict[str, Any] = {"value_serializer": as_json} if "value" in record else {}
    async with Producer(**settings, **serializes) as producer:
        assert (await producer.send("orders", b"first")).offset == 0
        bad = {"topic": "orders", "value": b"bad", **record}
        for send in (producer.send, producer.enqueue):
            with pytest.raises(error, match=text):
                await send(**bad)
        with pytest.raises(error, match=text):
            producer.send_nowait(**bad)
        assert (await producer.send("orders", b"second")).offset == 1


@scenario(play)
async def test_send_many_rejects_single_value(settings: dict[str, Any], /) -> None:
    async with Producer(**settings) as producer:
        for value in ("text", b"bytes"):
            with pytest.raises(WrongUse, match="send_many needs an iterable of values"):
                await producer.send_many("orders", value)


@scenario(play)
async def test_bytearray_and_memoryview_are_sent(settings: dict[str, Any], /) -> None:
    async with (
        Producer(**settings, value_serializer=lambda _topic, value: value) as producer,
        Consumer(**settings, auto_offset_reset="earliest") as consumer,
    ):
        headers = [("a", memoryview(b"1")), ["b", None]]
        await producer.send("orders", bytearray(b"v"), headers=headers)  # type: ignore[arg-type]
        consumer.assign(PARTITION)  # type: ignore[arg-type]
        (record,) = (await consumer.poll())[PARTITION]
        assert (record.value, list(record.headers)) == (b"v", [("a", b"1"), ("b", None)])


@pytest.mark.parametrize("wrong", [-1, "0", 1.5, True])
@scenario(play)
async def test_invalid_partition_is_rejected_immediately(
    settings: dict[str, Any], /, wrong: Any
) -> None:
    async with Producer(**settings) as producer, Consumer(**settings) as consumer:
        with pytest.raises(WrongUse, match="there is no partition"):
            await producer.send("orders", b"v", partition=wrong)
        with pytest.raises(WrongUse, match="there is no partition"):
            await consumer.get("orders", b"k", partition=wrong)


@pytest.mark.parametrize("wrong", [None, 5, ["k"]])
@scenario(play)
async def test_get_rejects_invalid_key(settings: dict[str, Any], /, wrong: Any) -> None:
    async with Consumer(**settings) as consumer:
        with pytest.raises(WrongUse, match="is not a record key"):
            await consumer.get("orders", wrong)


@scenario(play)
async def test_consumer_accepts_single_partition_for_collection(
    settings: dict[str, Any], /
) -> None:
    async with Consumer(**settings, group_id="g") as consumer:
        single: Any = PARTITION
        assert await consumer.beginning_offsets(single) == {PARTITION: 0}
        assert await consumer.committed(single) == {PARTITION: None}
        consumer.assign([("orders", 0)])  # type: ignore[list-item]
        assert consumer.assignment() == {PARTITION}
        for wrong in ("orders", [PARTITION], ("orders",), 0, ("orders", "0"), ("orders", -1)):
            with pytest.raises(WrongUse, match=r"is not a partition: use TopicPartition\("):
                consumer.pause(wrong)  # type: ignore[arg-type]
        for unplaced in ("0", 1.5, -1, 1 << 63, OffsetAndMetadata(1, metadata=b"note")):  # type: ignore[arg-type]
            with pytest.raises(WrongUse, match="is not an offset: offsets are non-negative"):
                consumer.seek(PARTITION, unplaced)  # type: ignore[arg-type]
            with pytest.raises(WrongUse, match="is not an offset: offsets are non-negative"):
                await consumer.commit({PARTITION: unplaced})  # type: ignore[dict-item]
            with pytest.raises(WrongUse, match="is not an offset: offsets are non-negative"):
                consumer.commit_nowait({PARTITION: unplaced})  # type: ignore[dict-item]
        await consumer.commit({PARTITION: 0})
        consumer.assign([])
        consumer.subscribe("orders")
        assert consumer.subscription() == {"orders"}
        for unnamed in (b"orders", [1]):
            with pytest.raises(WrongUse, match="is not a topic name"):
                consumer.subscribe(unnamed)  # type: ignore[arg-type]


@scenario(play)
async def test_admin_accepts_single_item_for_collection(settings: dict[str, Any], /) -> None:
    async with Admin(**settings) as admin:
        single: Any = PARTITION
        resource: Any = topic_resource("orders")
        assert list(await admin.create_topics("refunds")) == ["refunds"]
        assert list(await admin.create_topics([NewTopic("payments")])) == ["payments"]
        assert list(await admin.describe_topics("refunds")) == ["refunds"]
        assert list(await admin.describe_groups("billing")) == ["billing"]
        found = await admin.describe_configs(resource, names="retention.ms")
        assert [list(configs) for configs in found.values()] == [["retention.ms"]]
        assert await admin.describe_producers(single) == {PARTITION: []}
        assert await admin.list_reassignments(single) == {}
        assert await admin.list_group_offsets("billing", single) == {}
        (disk,) = (await admin.describe_log_dirs(partitions=single))[1]
        assert list(disk.replicas) == [PARTITION]
        assert await admin.list_transactions(states="Ongoing") == []
        await admin.delete_topics("refunds")
        names = [topic.name for topic in await admin.list_topics()]
        assert names == ["orders", "payments"]
