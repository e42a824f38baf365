"""Requests of the metadata quorum on the wire."""

from lograft.broker.quorum.outgoing_rpcs import RequestContext, request_to_wire
from lograft.consensus import messages as core
from lograft.consensus.types import LogEnd, ReplicaKey
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset
from lograft.wire.messages.fetch import FetchRequest
from lograft.wire.messages.vote import VoteRequest

CONTEXT = RequestContext(cluster_id="c", endpoints=(), fetch_bytes_max=1, snapshot_bytes_max=1)
ME, OTHER = ReplicaKey(NodeId(1)), ReplicaKey(NodeId(2))
EMPTY = LogEnd(NO_EPOCH, Offset(0))


def test_epochs_of_an_empty_log_are_0_which_kafka_accepts() -> None:
    fetch = core.FetchRequest(sender=ME, epoch=NO_EPOCH, log_end=EMPTY)
    wire = request_to_wire(fetch, CONTEXT).message
    assert isinstance(wire, FetchRequest)
    partition = wire.topics[0].partitions[0]
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (0, 0)
    assert partition.fetch_offset == 0
    vote = core.VoteRequest(sender=ME, to=OTHER, epoch=Epoch(1), log_end=EMPTY, pre_vote=False)
    message = request_to_wire(vote, CONTEXT).message
    assert isinstance(message, VoteRequest)
    (asked,) = message.topics[0].partitions
    assert (asked.last_offset_epoch, asked.last_offset) == (0, 0)


def test_epochs_of_records_stay() -> None:
    end = LogEnd(Epoch(3), Offset(7))
    wire = request_to_wire(core.FetchRequest(sender=ME, epoch=Epoch(4), log_end=end), CONTEXT)
    assert isinstance(wire.message, FetchRequest)
    partition = wire.message.topics[0].partitions[0]
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (4, 3)
