"""Message classes: constructors, defaults, equality and repr."""

import pytest

from lograft.model.types import ZERO_UUID
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from lograft.wire.messages.metadata import MetadataRequest
from lograft.wire.records.voters_record import KRaftVersionFeature, Voter


def test_every_field_has_a_default() -> None:
    request = FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.topics == []
    assert request.cluster_id is None
    assert request.replica_state is None
    assert FetchTopic().topic_id == ZERO_UUID
    assert Voter().kraft_version_feature == KRaftVersionFeature()


def test_lists_and_structs_are_not_shared() -> None:
    FetchRequest().topics.append(FetchTopic())
    assert FetchRequest().topics == []
    Voter().kraft_version_feature.max_supported_version = 5
    assert Voter().kraft_version_feature.max_supported_version == 0


def test_null_and_empty_are_different() -> None:
    assert MetadataRequest(topics=None) != MetadataRequest(topics=[])


def test_equality_is_by_value_and_class() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert ReplicaState() != FetchPartition()


def test_unknown_fields_are_rejected() -> None:
    with pytest.raises(TypeError, match="partitionn"):
        FetchPartition(partitionn=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchPartition().partitionn = 1  # type: ignore[attr-defined]


def test_repr_shows_fields_that_are_not_default() -> None:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(fetch_offset=5)])
    assert repr(topic) == "FetchTopic(topic='t', partitions=[FetchPartition(fetch_offset=5)])"
    assert repr(FetchTopic()) == "FetchTopic()"
