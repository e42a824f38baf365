"""What programs get wrong is told in words, and breaks nothing but the call it came with."""

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

PLACE = TopicPartition("orders", 0)


def play(scenario: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """On a node with a topic, given what clients need to reach it."""

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
        ({"topic": b"bytes"}, WrongUse, r"b'bytes' is not the name of a topic: names are text"),
        ({"topic": "\ud800"}, WrongUse, "is not the name of a topic"),
        ({"timestamp_ms": 1.5}, WrongUse, "1.5 is not a timestamp: timestamp_ms is whole"),
        ({"timestamp_ms": -1}, WrongUse, "-1 is not a timestamp"),
        ({"timestamp_ms": 1 << 63}, WrongUse, "is not a timestamp"),
        ({"headers": {"a": b"1"}}, WrongUse, r"'a' is not a header: they are pairs such as"),
        ({"headers": [("a", "1")]}, WrongUse, r"\('a', '1'\) is not a header"),
        ({"headers": [(b"a", b"1")]}, WrongUse, r"\(b'a', b'1'\) is not a header"),
        ({"headers": [("\ud800", b"1")]}, WrongUse, "is not a header"),
        ({"headers": [("a", b"1", b"2")]}, WrongUse, "is not a header"),
        ({"key": 7}, SerializationFailed, "int is neither bytes nor text: give a serializer"),
        ({"value": {"a": 1}}, SerializationFailed, "its serializer gave str, not bytes"),
        ({"value": "\ud800"}, SerializationFailed, "surrogates not allowed|gave str"),
    ],
)
@scenario(play)
async def test_a_producer_goes_on_after_a_record_that_cannot_be_one(
    given: dict[str, Any], /, record: dict[str, Any], error: type[Exception], text: str
) -> None:
    serializes: dict[str, Any] = {"value_serializer": as_json} if "value" in record else {}
    async with Producer(**given, **serializes) as producer:
        assert (await producer.send("orders", b"first")).offset == 0
        bad = {"topic": "orders", "value": b"bad", **record}
        for send in (producer.send, producer.enqueue):
            with pytest.raises(error, match=text):
                await send(**bad)
        with pytest.raises(error, match=text):
            producer.send_nowait(**bad)
        assert (await producer.send("orders", b"second")).offset == 1


@scenario(play)
async def test_one_value_is_not_many(given: dict[str, Any], /) -> None:
    async with Producer(**given) as producer:
        for value in ("text", b"bytes"):
            with pytest.raises(WrongUse, match="one value was given where many are wanted"):
                await producer.send_many("orders", value)


@scenario(play)
async def test_bytes_of_any_kind_are_sent(given: dict[str, Any], /) -> None:
    async with (
        Producer(**given, value_serializer=lambda _topic, value: value) as producer,
        Consumer(**given, auto_offset_reset="earliest") as consumer,
    ):
        headers = [("a", memoryview(b"1")), ["b", None]]
        await producer.send("orders", bytearray(b"v"), headers=headers)  # type: ignore[arg-type]
        consumer.assign(PLACE)  # type: ignore[arg-type]
        (record,) = (await consumer.poll())[PLACE]
        assert (record.value, list(record.headers)) == (b"v", [("a", b"1"), ("b", None)])


@pytest.mark.parametrize("wrong", [-1, "0", 1.5, True])
@scenario(play)
async def test_a_partition_that_is_none_is_told_at_once(
    given: dict[str, Any], /, wrong: Any
) -> None:
    async with Producer(**given) as producer, Consumer(**given) as consumer:
        with pytest.raises(WrongUse, match="there is no partition"):
            await producer.send("orders", b"v", partition=wrong)
        with pytest.raises(WrongUse, match="there is no partition"):
            await consumer.get("orders", b"k", partition=wrong)


@pytest.mark.parametrize("wrong", [None, 5, ["k"]])
@scenario(play)
async def test_what_is_no_key_is_not_looked_for(given: dict[str, Any], /, wrong: Any) -> None:
    async with Consumer(**given) as consumer:
        with pytest.raises(WrongUse, match="is not a key to look for"):
            await consumer.get("orders", wrong)


@scenario(play)
async def test_a_consumer_takes_one_for_several(given: dict[str, Any], /) -> None:
    async with Consumer(**given, group_id="g") as consumer:
        one: Any = PLACE
        assert await consumer.beginning_offsets(one) == {PLACE: 0}
        assert await consumer.committed(one) == {PLACE: None}
        consumer.assign([("orders", 0)])  # type: ignore[list-item]
        assert consumer.assignment() == {PLACE}
        for wrong in ("orders", [PLACE], ("orders",), 0, ("orders", "0"), ("orders", -1)):
            with pytest.raises(WrongUse, match=r"is not a partition: give TopicPartition\("):
                consumer.pause(wrong)  # type: ignore[arg-type]
        for unplaced in ("0", 1.5, -1, 1 << 63, OffsetAndMetadata(1, metadata=b"note")):  # type: ignore[arg-type]
            with pytest.raises(WrongUse, match="is not an offset: they are whole numbers"):
                consumer.seek(PLACE, unplaced)  # type: ignore[arg-type]
            with pytest.raises(WrongUse, match="is not an offset: they are whole numbers"):
                await consumer.commit({PLACE: unplaced})  # type: ignore[dict-item]
            with pytest.raises(WrongUse, match="is not an offset: they are whole numbers"):
                consumer.commit_nowait({PLACE: unplaced})  # type: ignore[dict-item]
        await consumer.commit({PLACE: 0})
        consumer.assign([])
        consumer.subscribe("orders")
        assert consumer.subscription() == {"orders"}
        for unnamed in (b"orders", [1]):
            with pytest.raises(WrongUse, match="is not the name of a topic"):
                consumer.subscribe(unnamed)  # type: ignore[arg-type]


@scenario(play)
async def test_an_administrator_takes_one_for_several(given: dict[str, Any], /) -> None:
    async with Admin(**given) as admin:
        place: Any = PLACE
        resource: Any = topic_resource("orders")
        assert list(await admin.create_topics("refunds")) == ["refunds"]
        assert list(await admin.create_topics([NewTopic("payments")])) == ["payments"]
        assert list(await admin.describe_topics("refunds")) == ["refunds"]
        assert list(await admin.describe_groups("billing")) == ["billing"]
        found = await admin.describe_configs(resource, names="retention.ms")
        assert [list(settings) for settings in found.values()] == [["retention.ms"]]
        assert await admin.describe_producers(place) == {PLACE: []}
        assert await admin.list_reassignments(place) == {}
        assert await admin.list_group_offsets("billing", place) == {}
        (disk,) = (await admin.describe_log_dirs(partitions=place))[1]
        assert list(disk.replicas) == [PLACE]
        assert await admin.list_transactions(states="Ongoing") == []
        await admin.delete_topics("refunds")
        names = [topic.name for topic in await admin.list_topics()]
        assert names == ["orders", "payments"]
