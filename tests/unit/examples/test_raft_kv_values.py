"""The key-value example's values: in messages, in the log, in the store, on the command line."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.raft_kv import entries
from examples.raft_kv.addresses import parse_peer, parse_peers
from examples.raft_kv.packing import DEPTH_MAX, Malformed, Value, pack, unpack, unpack_tuple
from examples.raft_kv.raft_messages import from_values, to_values
from examples.raft_kv.store import (
    CLIENTS_MAX,
    DONE,
    KEY_BYTES_MAX,
    REFUSED,
    STORE_BYTES_MAX,
    VALUE_BYTES_MAX,
    KeyValueStore,
    delete_command,
    set_command,
)
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from lograft.consensus.types import (
    LeaderChange,
    LogEnd,
    ReplicaKey,
    SnapshotId,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from lograft.model.errors import InvalidInput
from lograft.model.seams import Address
from lograft.model.types import Epoch, NodeId, Offset
from lograft.wire.batches import patch

# ── packing ──────────────────────────────────────────────────────────────────────────────────

PLAIN = st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary() | st.text()
PAIRS = st.lists(PLAIN, max_size=4).map(tuple)
VALUES: st.SearchStrategy[Value] = PLAIN | st.lists(PLAIN | PAIRS, max_size=8).map(tuple)


@given(VALUES)
def test_what_is_packed_is_unpacked(value: Value) -> None:
    assert unpack(pack(value)) == value


@given(st.binary(max_size=100))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        from_values(unpack_tuple(data))
    except Malformed:
        pass


@given(VALUES.filter(lambda value: isinstance(value, tuple)))
def test_any_tuple_is_a_message_or_refused(value: tuple[Value, ...]) -> None:
    for kind in range(12):
        try:
            from_values((kind, *value))
        except Malformed:
            pass


def test_a_deep_tuple_is_refused() -> None:
    value: Value = None
    for _ in range(DEPTH_MAX + 1):
        value = (value,)
    with pytest.raises(Malformed, match="nested tuples"):
        unpack(pack(value))


# ── messages ─────────────────────────────────────────────────────────────────────────────────

ONE, TWO = ReplicaKey(NodeId(1), UUID(int=7)), ReplicaKey(NodeId(2))
E, END = Epoch(5), LogEnd(Epoch(4), Offset(17))
SNAPSHOT = SnapshotId(Offset(9), Epoch(3))


def batch(base: int, epoch: int, *commands: bytes) -> bytes:
    data = entries.commands_batch(commands, now_ms=0)
    patch(data, 0, base, epoch)
    return bytes(data)


MESSAGES: list[Message] = [
    VoteRequest(sender=ONE, to=TWO, epoch=E, log_end=END, pre_vote=True, request_id=3),
    VoteResponse(sender=NodeId(2), epoch=E, leader=NodeId(1), granted=True, request_id=3),
    BeginQuorumEpochRequest(sender=ONE, to=TWO, epoch=E, request_id=4),
    BeginQuorumEpochResponse(sender=NodeId(2), epoch=E, error=Error.FENCED_EPOCH, request_id=4),
    EndQuorumEpochRequest(sender=ONE, epoch=E, successors=(TWO, ONE), request_id=5),
    EndQuorumEpochResponse(sender=NodeId(2), epoch=E, request_id=5),
    FetchRequest(sender=ONE, epoch=E, log_end=END, high_watermark=Offset(3), wait_ms=9),
    FetchResponse(sender=NodeId(2), epoch=E, diverging=END, high_watermark=Offset(1)),
    FetchResponse(sender=NodeId(2), epoch=E, snapshot=SNAPSHOT),
    FetchResponse(
        sender=NodeId(2),
        epoch=E,
        entries=entries.slice_of(batch(17, 4, b"a", b"b") + batch(19, 5, b"c")),
    ),
    FetchSnapshotRequest(sender=ONE, epoch=E, snapshot=SNAPSHOT, position=2, request_id=1),
    FetchSnapshotResponse(
        sender=NodeId(2), epoch=E, snapshot=SNAPSHOT, position=2, size_bytes=5, data=b"abc"
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_arrive_as_they_left(message: Message) -> None:
    data = pack(to_values(message))
    assert from_values(unpack_tuple(data)) == message
    for size in range(len(data)):
        with pytest.raises(Malformed):
            from_values(unpack_tuple(data[:size]))


def test_batches_that_do_not_follow_are_refused() -> None:
    with pytest.raises(Malformed, match="follows one that ends at 2"):
        entries.slice_of(batch(1, 4, b"a") + batch(3, 4, b"b"))
    damaged = bytearray(batch(1, 4, b"a"))
    damaged[-1] ^= 1
    with pytest.raises(Malformed, match="CRC"):
        entries.slice_of(bytes(damaged))


def test_the_log_names_its_voters() -> None:
    voters = VoterSet((Voter(ONE, (VoterEndpoint("KV", "here", 7000),)), Voter(TWO)))
    change = LeaderChange(E, NodeId(1), (NodeId(1), NodeId(2)), (NodeId(1),))
    data = entries.leader_batch(change, voters, now_ms=0)
    patch(data, 0, 10, 5)
    found = entries.slice_of(bytes(data))
    assert found.voters == ((Offset(11), voters),)
    assert found.epochs == ((E, Offset(10)),)
    assert entries.unpack_voters(entries.pack_voters(voters)) == voters


# ── the store ────────────────────────────────────────────────────────────────────────────────

ME, OTHER = bytes(16), bytes(15) + b"x"


def ask(store: KeyValueStore, command: bytes) -> tuple[Value, ...]:
    return unpack_tuple(store.apply(command))


def test_a_command_is_done_once() -> None:
    store = KeyValueStore()
    assert ask(store, set_command(ME, 1, b"k", b"1")) == (DONE, 0)
    assert ask(store, set_command(OTHER, 1, b"k", b"2")) == (DONE, 1)
    assert ask(store, set_command(ME, 1, b"k", b"1")) == (DONE, 0), "the first answer"
    assert unpack(store.query(b"k")) == (DONE, b"2")
    assert ask(store, delete_command(ME, 2, b"k")) == (DONE, 1)
    assert ask(store, delete_command(ME, 2, b"k")) == (DONE, 1)
    assert ask(store, delete_command(ME, 3, b"k")) == (DONE, 0)
    assert ask(store, set_command(ME, 1, b"k", b"1"))[0] == REFUSED, "it came much too late"
    assert unpack(store.query(b"k")) == (DONE, None)


def test_a_snapshot_is_of_its_moment() -> None:
    store, copy = KeyValueStore(), KeyValueStore()
    store.apply(set_command(ME, 1, b"k", b"1"))
    snapshot = store.snapshot()
    store.apply(set_command(ME, 2, b"k", b"2"))
    copy.apply(set_command(OTHER, 9, b"gone", b"1"))
    copy.restore(snapshot())
    assert copy.items == {b"k": b"1"}
    assert ask(copy, set_command(ME, 1, b"k", b"7")) == (DONE, 0), "the clients came along"
    assert copy.items == {b"k": b"1"}
    assert copy.snapshot()() == snapshot()


def test_the_store_has_bounds() -> None:
    store = KeyValueStore()
    value = bytes(VALUE_BYTES_MAX)
    count = STORE_BYTES_MAX // (VALUE_BYTES_MAX + 3)
    for number in range(count):
        assert ask(store, set_command(ME, number, b"%03d" % number, value))[0] == DONE
    assert ask(store, set_command(ME, count, b"one more", value))[0] == REFUSED
    assert ask(store, set_command(ME, count + 1, b"000", b"")) == (DONE, 1)
    assert ask(store, set_command(ME, count + 2, b"yes", value))[0] == DONE
    for number in range(CLIENTS_MAX + 5):
        store.apply(delete_command(number.to_bytes(16, "big"), 1, b"k"))
    assert len(store._clients) == CLIENTS_MAX


@pytest.mark.parametrize(
    "command",
    [
        b"",
        pack((ME, 1)),
        set_command(b"short", 1, b"k", b""),
        set_command(ME, -1, b"k", b""),
        set_command(ME, 1, b"", b""),
        set_command(ME, 1, bytes(KEY_BYTES_MAX + 1), b""),
        set_command(ME, 1, b"k", bytes(VALUE_BYTES_MAX + 1)),
        pack((ME, 1, 9, b"k", b"")),
        pack((ME, "1", 1, b"k", b"")),
    ],
)
def test_nonsense_is_answered(command: bytes) -> None:
    store = KeyValueStore()
    assert ask(store, command)[0] == REFUSED
    assert len(store) == 0


# ── the command line ─────────────────────────────────────────────────────────────────────────


def test_peers() -> None:
    assert parse_peer("[::1]:7001:1").address == Address("::1", 7001)
    assert [int(peer.node_id) for peer in parse_peers("b:2:2,a:1:1,")] == [1, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no servers specified"),
        ("localhost:7001", "is not host:port:id"),
        ("localhost:x:1", "is not host:port:id"),
        (":1:1", "is not host:port:id"),
        ("localhost:99999:1", "between 1 and 65535"),
        ("localhost:1:99999999999", "above"),
        ("a:1:1,b:2:1", "an id twice"),
        ("a:1:1,a:1:2", "an address twice"),
        (",".join(f"a:{n}:{n}" for n in range(1, 200)), "exceed the maximum"),
    ],
)
def test_what_is_no_list_of_peers(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        parse_peers(text)
