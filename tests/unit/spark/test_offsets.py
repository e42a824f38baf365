"""Tests of offsets in the JSON format of Spark's Kafka source."""

import json
from uuid import UUID

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.types import ZERO_UUID, TopicPartition
from lograft.spark.offsets import check_covers, from_json, ids_in, to_json

ONE, TWO, TEN = TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("a", 10)


def test_json_matches_sparks_kafka_source() -> None:
    offsets = {TEN: 5, TWO: 7, TopicPartition("b", 0): 0}
    text = json.dumps(to_json(offsets), separators=(",", ":"))
    assert text == '{"a":{"2":7,"10":5},"b":{"0":0}}'
    assert from_json(json.loads(text)) == offsets


def test_stream_offsets_contain_topic_ids() -> None:
    offsets = {ONE: 5, TopicPartition("b", 0): 0}
    ids = {"a": UUID(int=7), "elsewhere": UUID(int=8), "b": ZERO_UUID}
    written = to_json(offsets, ids)
    # Spark's Kafka source reads the last entry as a topic without partitions.
    assert written == {"a": {"1": 5}, "b": {"0": 0}, "a@AAAAAAAAAAAAAAAAAAAABw": {}}
    assert from_json(written) == offsets
    assert ids_in(written) == {"a": UUID(int=7)}


def test_offsets_must_list_exactly_the_existing_partitions() -> None:
    check_covers("startingOffsets", [ONE, TWO], {ONE, TWO}, "list all")
    with pytest.raises(InvalidConfig, match="startingOffsets is missing a-2 and contains a-10"):
        check_covers("startingOffsets", [ONE, TEN], {ONE, TWO}, "list all")
