import pytest

from lograft.broker.partitions.replica_selection import (
    LEADER_SELECTOR,
    RACK_AWARE_SELECTOR,
    is_rack_aware,
    nearest_replica,
)
from lograft.model.errors import InvalidConfig
from lograft.model.types import BrokerEpoch, NodeId, Offset
from lograft.replication.replica_view import ReplicaStatus

RACKS = {1: "a", 2: "b", 3: "b", 4: None}


def status(
    node: int, *, start: int = 0, end: int = 10, in_sync: bool = True, caught_up_ms: int = 5
) -> ReplicaStatus:
    return ReplicaStatus(
        NodeId(node),
        Offset(start),
        Offset(end),
        10 - end,
        in_sync,
        5,
        caught_up_ms,
        BrokerEpoch(1),
    )


def nearest(*followers: ReplicaStatus, rack: str = "b", offset: int = 5) -> int | None:
    return nearest_replica(
        [status(1), *followers],
        client_rack=rack,
        offset=Offset(offset),
        rack_of=lambda node: RACKS[node],
    )


def test_selectors_go_by_the_names_of_kafkas_classes() -> None:
    assert not is_rack_aware(None)
    assert not is_rack_aware("")
    assert not is_rack_aware(LEADER_SELECTOR)
    assert is_rack_aware(RACK_AWARE_SELECTOR)
    with pytest.raises(InvalidConfig):
        is_rack_aware("com.example.Mine")


def test_the_least_lagging_replica_of_the_rack_is_taken() -> None:
    assert nearest(status(2, end=8), status(3, end=9)) == 3
    assert nearest(status(2, caught_up_ms=7), status(3, caught_up_ms=3)) == 2


def test_the_leader_is_taken_when_it_is_near_or_nobody_is() -> None:
    assert nearest(status(2), status(3), rack="a") is None
    assert nearest(status(2), status(3), rack="elsewhere") is None
    assert nearest(status(4), rack="b") is None


def test_only_replicas_that_are_in_sync_and_hold_the_offset_count() -> None:
    assert nearest(status(2, in_sync=False)) is None
    assert nearest(status(2, end=4)) is None
    assert nearest(status(2, start=6)) is None
    assert nearest(status(2, start=5, end=5)) == 2
