"""The metadata log and snapshots that a real Apache Kafka wrote."""

import json
from pathlib import Path

import pytest

from lograft.metadata.image import MetadataImage
from lograft.wire.batches import iterate_headers, read_records
from lograft.wire.message import Message
from lograft.wire.record_frames import (
    UnknownRecord,
    decode_control_key,
    decode_control_value,
    decode_record,
    encode_control_value,
    encode_record,
)
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from tests.golden.kafka_folders import Folder, unpack

LOG = "__cluster_metadata-0/00000000000000000000.log"
BYTES_MAX = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return unpack("stopped", tmp_path_factory.mktemp("metadata"))


def values_in(folder: Folder, name: str) -> list[tuple[int, bool, bytes, bytes]]:
    """Returns offset, whether it is a control record, key and value of every record in a file."""
    data = memoryview((folder.data / name).read_bytes())
    return [
        (record.offset, header.is_control, record.key or b"", record.value or b"")
        for position, header in iterate_headers(data)
        for record in read_records(
            data[position : position + header.size_bytes], bytes_max=BYTES_MAX
        )
    ]


def messages_in(folder: Folder, name: str, *, after: int = -1) -> list[Message]:
    found = []
    for offset, is_control, _key, value in values_in(folder, name):
        if not is_control and offset > after:
            message = decode_record(value)
            assert isinstance(message, Message), message
            found.append(message)
    return found


def checkpoints(folder: Folder) -> list[str]:
    return [*folder.files("__cluster_metadata-0/*.checkpoint"), "bootstrap.checkpoint"]


def snake(name: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)[1:]


def test_records_match_kafkas_tool(folder: Folder) -> None:
    for name in [LOG, *checkpoints(folder)]:
        reported = [
            json.loads(line.partition("payload: ")[2])["type"]
            for line in folder.records(name)
            if "payload: " in line
        ]
        assert [snake(type(each).__name__) for each in messages_in(folder, name)] == reported, name


def test_rewritten_records_are_equal(folder: Folder) -> None:
    for name in [LOG, *checkpoints(folder)]:
        for offset, is_control, key, value in values_in(folder, name):
            if is_control:
                number = decode_control_key(key)
                control = decode_control_value(number, value)
                assert not isinstance(control, UnknownRecord), (name, offset)
                assert encode_control_value(number, control) == value, (name, offset)
            else:
                record = decode_record(value)
                assert isinstance(record, Message)
                assert encode_record(record, value[2]) == value, (name, offset)


def replayed(messages: list[Message]) -> MetadataImage:
    image = MetadataImage()
    for message in messages:
        image.replay(message)
    return image


def comparable(image: MetadataImage) -> list[str]:
    """Returns its records without their order; a broker's features have no order either."""
    records = list(image.records())
    for record in records:
        if isinstance(record, RegisterBrokerRecord):
            record.features.sort(key=lambda feature: feature.name)
    return sorted(map(repr, records))


def test_snapshot_and_later_log_give_the_image_of_the_whole_log(folder: Folder) -> None:
    whole = replayed(messages_in(folder, LOG))
    assert set(whole.topic_ids) >= {"none", "zstd", "rolled", "transactions", "cut"}
    assert "gone" not in whole.topic_ids
    for name in checkpoints(folder):
        number = Path(name).name.partition("-")[0]
        if not number.isdigit() or int(number) == 0:
            continue
        tail = messages_in(folder, LOG, after=int(number) - 1)
        image = replayed(messages_in(folder, name) + tail)
        assert comparable(image) == comparable(whole), name


def test_image_writes_the_same_snapshot_as_kafka(folder: Folder) -> None:
    """Lograft's snapshot of the state has the same records as Kafka's."""
    newest = checkpoints(folder)[-2]
    kafkas = messages_in(folder, newest)
    ours = list(replayed(kafkas).records())
    assert sorted(map(repr, ours)) == sorted(map(repr, kafkas))
