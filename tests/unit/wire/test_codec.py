"""Rules of the format that a comparison with other implementations does not cover."""

from uuid import UUID

import pytest

from lograft.model.seams import Buffer, FileSlice, Part
from lograft.wire import codec
from lograft.wire.errors import MalformedMessage, UnsupportedVersion, UnwritableMessage
from lograft.wire.message import (
    Message,
    Records,
    array,
    int16,
    int32,
    record_batches,
    string,
    struct,
)
from lograft.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from lograft.wire.messages.produce import ProduceRequest
from lograft.wire.varints import uvarint
from lograft.wire.write_compiler import COPY_BYTES_MAX


class Inner(Message):
    a: int = int32()


class Outer(Message, versions=(0, 3), flexible=2):
    number: int = int16()
    text: str | None = string(nullable=1)
    dropped: int = int32(since=1, default=-1, ignorable=True)
    strict: int = int32(since=1, default=-1)
    items: list[Inner] = array(Inner)
    extra: str = string(since=2, tag=0)
    inner: Inner | None = struct(Inner, since=2, tag=3, default=None)


class Carrier(Message, versions=(0, 0)):
    before: int = int32()
    records: Records | None = record_batches(nullable=0, default=None)
    after: int = int32()


class StringFile:
    """The part of a File that a slice of it needs."""

    path = "memory"

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def pread(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def append(self, *parts: Buffer) -> int:
        raise NotImplementedError

    def pwrite(self, data: Buffer, position: int) -> None:
        raise NotImplementedError

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def reserve(self, size: int) -> bool:
        raise NotImplementedError

    def fsync(self) -> None:
        raise NotImplementedError

    def fileno(self) -> int:
        raise NotImplementedError


def test_unknown_versions_are_rejected() -> None:
    for version in (-1, 4):
        with pytest.raises(UnsupportedVersion, match="versions 0 to 3"):
            codec.read(Outer, version, b"")
        with pytest.raises(UnsupportedVersion):
            codec.write(Outer(), version)


def test_field_missing_in_the_version_keeps_its_default() -> None:
    data = codec.write(Outer(number=7, text="x"), 0)
    assert data == b"\0\7\0\1x\0\0\0\0"
    assert codec.read_all(Outer, 0, data) == Outer(number=7, text="x")


def test_value_missing_in_the_version_is_rejected_unless_ignorable() -> None:
    assert codec.write(Outer(dropped=5), 0) == codec.write(Outer(), 0)
    with pytest.raises(UnwritableMessage, match=r"Outer\.strict is set, but version 0"):
        codec.write(Outer(strict=5), 0)
    with pytest.raises(UnwritableMessage, match=r"Outer\.inner"):
        codec.write(Outer(inner=Inner(a=1)), 1)


@pytest.mark.parametrize(
    "message",
    [Outer(number=1 << 15), Outer(text=None), Outer(items=[Inner(a=1 << 31)])],
    ids=["too big", "null where none may be", "too big inside"],
)
def test_values_that_do_not_fit_are_rejected(message: Outer) -> None:
    with pytest.raises(UnwritableMessage, match="Outer v0"):
        codec.write(message, 0)


def test_null_is_malformed_in_fields_that_are_not_nullable() -> None:
    assert codec.read_all(Outer, 1, codec.write(Outer(text=None), 1)).text is None
    with pytest.raises(MalformedMessage, match=r"Outer\.text is null"):
        codec.read(Outer, 0, b"\0\7\xff\xff\0\0\0\0")
    with pytest.raises(MalformedMessage, match=r"Outer\.items is null"):
        codec.read(Outer, 0, b"\0\7\0\0\xff\xff\xff\xff")


def test_tagged_fields_are_written_only_if_set_and_in_order() -> None:
    plain = codec.write(Outer(text=""), 2)
    assert plain[-1] == 0
    tagged = codec.write(Outer(text="", extra="e", inner=Inner(a=9)), 2)
    assert tagged == plain[:-1] + b"\2" + b"\0\2\2e" + b"\3\5\0\0\0\x09\0"
    assert codec.read_all(Outer, 2, tagged) == Outer(text="", extra="e", inner=Inner(a=9))


def test_tagged_struct_of_defaults_equals_none() -> None:
    assert codec.write(Outer(inner=Inner()), 2) == codec.write(Outer(inner=None), 2)


def test_unknown_tags_are_skipped() -> None:
    plain = codec.write(Outer(text=""), 2)[:-1]
    known, unknown = b"\0\2\2e", [b"\1\0", b"\2\3abc", uvarint(10_000) + uvarint(200) + b"x" * 200]
    data = plain + b"\4" + known + b"".join(unknown)
    assert codec.read(Outer, 2, data) == (Outer(text="", extra="e"), len(data))
    inner_data = b"\0\0\1" + b"\xff\xff\xff\xff" * 2 + b"\2" + b"\0\0\0\5" + b"\1\x09\1z" + b"\0"
    assert codec.read_all(Outer, 2, inner_data).items == [Inner(a=5)]


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\2\0\2\2e\0\2\2e", "out of order"),
        (b"\2\3\5\0\0\0\1\0\0\2\2e", "out of order"),
        (b"\1\0\3\2e", "wrong size|after the last byte|out of order"),
        (b"\1\0\1\2e", "wrong size"),
        (b"\1\5\x7f", "size"),
        (b"\x7f\0\2\2e", "127 tagged fields in"),
        (b"\xff\xff\xff\xff\x0f", "tagged fields in"),
        (b"\xff\xff\xff\xff\xff\x0f", "varint"),
        (b"\1\xff\xff\xff\xff\xff\xff\xff", "varint"),
    ],
)
def test_invalid_tags_are_malformed(tags: bytes, reason: str) -> None:
    plain = codec.write(Outer(text=""), 2)[:-1]
    with pytest.raises(MalformedMessage, match=reason):
        codec.read(Outer, 2, plain + tags)


@pytest.mark.parametrize(
    "tags", [b"\2\0\0\0\0", b"\2\1\0\0\0", b"\1\0\5abc", b"\3\0\0\1\0", b"\1\xff\xff\xff\xff\xff\1"]
)
def test_invalid_tags_are_malformed_without_known_tags(tags: bytes) -> None:
    assert codec.read_all(MetadataRequest, 9, b"\1\0\0\0\2\6\0\7\1x") == MetadataRequest(
        allow_auto_topic_creation=False
    )
    with pytest.raises(MalformedMessage):
        codec.read(MetadataRequest, 9, b"\1\0\0\0" + tags)


def test_invalid_counts_are_rejected_before_allocation() -> None:
    for count in (2, 1000, 2**31 - 1):
        with pytest.raises(
            MalformedMessage, match=rf"Outer\.items has an invalid count: {count}, with 4"
        ):
            codec.read(Outer, 0, b"\0\7\0\0" + count.to_bytes(4, "big") + b"\0\0\0\1")
    with pytest.raises(MalformedMessage, match="invalid count"):
        codec.read(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + b"\1" * 64)


def test_number_of_elements_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lograft.wire.read_compiler.ELEMENTS_MAX", 3)

    class Many(Message, versions=(0, 0)):
        items: list[Inner] = array(Inner)

    assert len(codec.read_all(Many, 0, codec.write(Many(items=[Inner()] * 3), 0)).items) == 3
    with pytest.raises(MalformedMessage, match="invalid count: 4"):
        codec.read(Many, 0, codec.write(Many(items=[Inner()] * 4), 0))

    class Mixed(Message, versions=(0, 0)):
        texts: list[str] = array("string")
        numbers: list[int] = array("int8")

    whole = Mixed(texts=[""], numbers=[1, 2])
    assert codec.read_all(Mixed, 0, codec.write(whole, 0)) == whole
    with pytest.raises(MalformedMessage, match="numbers has an invalid count: 2"):
        codec.read(Mixed, 0, codec.write(Mixed(texts=["", ""], numbers=[1, 2]), 0))


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="utf-8"):
        codec.read(Outer, 0, b"\0\7\0\2\xff\xfe\0\0\0\0")
    with pytest.raises(MalformedMessage, match="utf-8"):
        codec.read(ProduceRequest, 9, b"\3\xff\xfe" + b"\0" * 20)


def test_bytes_after_the_message_are_left_to_the_caller() -> None:
    data = codec.write(Outer(), 0)
    assert codec.read(Outer, 0, b"##" + data + b"##", 2) == (Outer(), 2 + len(data))
    with pytest.raises(MalformedMessage, match="2 bytes too early"):
        codec.read_all(Outer, 0, data + b"##")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_is_read(kind: type) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=UUID(int=5))])
    assert codec.read_all(MetadataRequest, 12, kind(codec.write(request, 12))) == request


def test_records_are_views_of_the_input() -> None:
    frame = bytearray(codec.write(Carrier(before=1, records=b"batches", after=2), 0))
    carrier = codec.read_all(Carrier, 0, memoryview(frame))
    assert isinstance(carrier.records, memoryview)
    frame[8] = ord("B")
    assert bytes(carrier.records) == b"Batches"


def write_parts(message: Message, version: int) -> list[Part]:
    parts: list[Part] = []
    tail = codec.write_tail(message, version, parts)
    return [*parts, tail] if tail else parts


def test_records_in_files_and_large_buffers_are_not_copied() -> None:
    file = StringFile(b"0123456789")
    inside = FileSlice(file, 2, 5)
    parts = write_parts(Carrier(before=1, records=inside, after=2), 0)
    assert parts == [b"\0\0\0\1\0\0\0\5", inside, b"\0\0\0\2"]
    assert codec.write(Carrier(before=1, records=inside, after=2), 0) == (
        b"\0\0\0\1\0\0\0\x0523456\0\0\0\2"
    )
    big = memoryview(bytes(COPY_BYTES_MAX + 1))
    assert write_parts(Carrier(records=big), 0)[1] is big
    assert len(write_parts(Carrier(records=b"small"), 0)) == 1
    assert write_parts(Carrier(records=None), 0) == [b"\0\0\0\0\xff\xff\xff\xff\0\0\0\0"]


def test_fetch_response_of_several_partitions_keeps_its_slices() -> None:
    file = StringFile(bytes(1000))
    slices = [FileSlice(file, 0, 400), FileSlice(file, 400, 600)]
    leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=4)
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=UUID(int=9),
                partitions=[
                    PartitionData(partition_index=0, records=slices[0]),
                    PartitionData(
                        partition_index=1,
                        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
                    ),
                    PartitionData(partition_index=2, records=slices[1], aborted_transactions=None),
                ],
            )
        ]
    )
    for version in range(13, 18):
        parts = write_parts(response, version)
        assert [part for part in parts if isinstance(part, FileSlice)] == slices
        back = codec.read_all(FetchResponse, version, codec.write(response, version))
        partitions = back.responses[0].partitions
        assert [len(p.records or b"") for p in partitions] == [400, 0, 600]
        assert partitions[1].current_leader == leader


def test_long_strings_and_arrays_have_longer_varints() -> None:
    for size in (126, 127, 128, 16_383, 16_384):
        text = "x" * size
        request = MetadataRequest(topics=[MetadataRequestTopic(name=text)])
        assert codec.read_all(MetadataRequest, 9, codec.write(request, 9)) == request
        many = FetchRequest(topics=[FetchTopic(topic_id=UUID(int=n)) for n in range(size % 300)])
        assert codec.read_all(FetchRequest, 17, codec.write(many, 17)) == many
