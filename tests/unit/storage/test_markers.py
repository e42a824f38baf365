from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.storage.markers import build_marker, read_marker
from lograft.storage.producers import Marker
from lograft.storage.types import TransactionEnd
from lograft.wire.batches import MalformedBatch, Record, build_batch, read_records
from tests.unit.storage.logs import NOW_MS, make_marker, marker_key, marker_value


def marker_of(commit: bool, epoch: int) -> bytearray:
    return build_marker(TransactionEnd(7, 3, commit, epoch), NOW_MS)


@given(commit=st.booleans(), epoch=st.integers(-1, 2**31 - 1))
def test_it_is_built_as_any_batch_of_one_record_would_be(commit: bool, epoch: int) -> None:
    plainly = make_marker(7, commit=commit, epoch=3, coordinator_epoch=epoch)
    assert marker_of(commit, epoch) == plainly


@given(commit=st.booleans(), epoch=st.integers(-1, 2**31 - 1))
def test_what_was_built_is_read(commit: bool, epoch: int) -> None:
    assert read_marker(marker_of(commit, epoch)) == Marker(commit, epoch)
    assert read_marker(memoryview(marker_of(commit, epoch))) == Marker(commit, epoch)


def test_other_forms_are_read_too() -> None:
    """Longer keys and values of later versions, compressed ones."""
    for key, value, compression in (
        (marker_key(commit=True), marker_value(9), 1),
        (marker_key(commit=True) + b"more", marker_value(9), 0),
        (marker_key(commit=True), marker_value(9) + b"more", 0),
    ):
        record = Record(0, 5, key, value)
        batch = build_batch(
            [record], producer_id=7, producer_epoch=3, transactional=True, control=True,
            compression=compression,
        )  # fmt: skip
        assert read_marker(batch) == Marker(True, 9)


@settings(max_examples=500)
@given(position=st.integers(57, 77), value=st.integers(0, 255))
def test_the_short_way_says_what_the_long_one_does(position: int, value: int) -> None:
    batch = marker_of(True, 9)
    batch[position] = value
    try:
        (record,) = read_records(batch, bytes_max=1 << 20)
    except (MalformedBatch, ValueError):
        record = None
    try:
        found = read_marker(batch)
    except MalformedBatch:
        assert record is None
        return
    if found is not None:
        assert record is not None
        assert record.key is not None
        assert record.value is not None
        assert found.commit == (record.key[:4][-1] == 1)
        assert found.coordinator_epoch == int.from_bytes(record.value[2:6], "big", signed=True)
