"""Offsets in the shape that Spark's Kafka source gives them."""

import json
from uuid import UUID

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.types import ZERO_UUID, TopicPartition
from lograft.spark.offsets import check_covers, from_json, ids_in, to_json

ONE, TWO, TEN = TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("a", 10)


def test_the_json_is_that_of_sparks_kafka_source() -> None:
    offsets = {TEN: 5, TWO: 7, TopicPartition("b", 0): 0}
    text = json.dumps(to_json(offsets), separators=(",", ":"))
    assert text == '{"a":{"2":7,"10":5},"b":{"0":0}}'
    assert from_json(json.loads(text)) == offsets


def test_a_stream_also_says_of_which_topics_its_offsets_are() -> None:
    offsets = {ONE: 5, TopicPartition("b", 0): 0}
    ids = {"a": UUID(int=7), "elsewhere": UUID(int=8), "b": ZERO_UUID}
    written = to_json(offsets, ids)
    # A name without partitions has no offsets, whoever reads it.
    assert written == {"a": {"1": 5}, "b": {"0": 0}, "a@AAAAAAAAAAAAAAAAAAAABw": {}}
    assert from_json(written) == offsets
    assert ids_in(written) == {"a": UUID(int=7)}


def test_offsets_name_every_partition_and_no_other() -> None:
    check_covers("startingOffsets", [ONE, TWO], {ONE, TWO}, "name all")
    with pytest.raises(InvalidConfig, match="startingOffsets does not name a-2 and names a-10"):
        check_covers("startingOffsets", [ONE, TEN], {ONE, TWO}, "name all")
