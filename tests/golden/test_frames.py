"""Frames recorded from a real Apache Kafka: reading and writing them again gives the same bytes."""

from collections import defaultdict
from pathlib import Path

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.seams import FileSlice
from lograft.wire.apis import (
    API_VERSIONS,
    API_VERSIONS_KEY,
    request_class,
    response_class,
    response_header_version,
    spec_of,
)
from lograft.wire.batches import check_crc, iterate_headers, read_records
from lograft.wire.codec import read_all, write
from lograft.wire.headers import (
    frame_response,
    read_request_header,
    read_response_header,
    write_request_header,
)
from lograft.wire.messages.api_versions import ApiVersionsResponse
from lograft.wire.messages.fetch import FetchResponse
from lograft.wire.messages.produce import ProduceRequest
from tests.golden.frames_file import FOLDER, Frame, all_frames, read_frames

RECORDED = sorted(FOLDER.glob("*.gz"))
RECORDS_BYTES_MAX = 1_000_000


def rewrite(frame: Frame) -> bytes:
    """Reads and writes the frame."""
    if frame.direction == "request":
        header = read_request_header(frame.data)
        assert (header.api_key, header.api_version) == (frame.api_key, frame.version)
        request = read_all(
            request_class(frame.api_key), frame.version, frame.data, header.body_position
        )
        head = write_request_header(
            frame.api_key, frame.version, header.correlation_id, header.client_id
        )
        return head + write(request, frame.version)
    header_version = response_header_version(frame.api_key, frame.version)
    correlation_id, position = read_response_header(frame.data, header_version)
    response = read_all(response_class(frame.api_key), frame.version, frame.data, position)
    parts = frame_response(
        response,
        frame.version,
        correlation_id=correlation_id,
        header_version=header_version,
    )
    return b"".join(part for part in parts if not isinstance(part, FileSlice))[4:]


def is_too_new(frame: Frame) -> bool:
    """Some clients send ApiVersions in a version that Kafka 4.3 does not have."""
    return (
        frame.api_key == API_VERSIONS_KEY and frame.version > spec_of(API_VERSIONS_KEY).max_version
    )


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_rewritten_frames_are_equal(path: Path) -> None:
    for frame in read_frames(path):
        if not is_too_new(frame):
            assert rewrite(frame) == frame.data, str(frame)


def test_response_to_an_unknown_api_versions_version_is_version_0() -> None:
    """KIP-511: the response has an error and the versions of ApiVersions itself."""
    responses = [frame for frame in all_frames() if is_too_new(frame)]
    assert {frame.direction for frame in responses} == {"request", "response"}
    for frame in responses:
        if frame.direction == "response":
            assert rewrite(frame._replace(version=0)) == frame.data
            response = read_all(ApiVersionsResponse, 0, frame.data, 4)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [key.api_key for key in response.api_keys] == [API_VERSIONS_KEY]


def versions_recorded(api_key: int, direction: str) -> set[int]:
    return {
        frame.version
        for path in RECORDED
        if path.name.startswith(f"{api_key:02}-")
        for frame in read_frames(path)
        if frame.direction == direction
    }


@pytest.mark.parametrize("direction", ["request", "response"])
def test_every_version_of_data_and_metadata_apis_is_recorded(direction: str) -> None:
    missing: dict[str, set[int]] = defaultdict(set)
    for key in (0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 46, 55, 60, 74, 75):
        spec = spec_of(key)
        wanted = set(range(spec.min_version, spec.max_version + 1))
        missing[spec.name] = wanted - versions_recorded(key, direction)
    assert {name: versions for name, versions in missing.items() if versions} == {}


def test_every_recorded_api_is_known() -> None:
    assert {frame.api_key for frame in all_frames()} <= set(API_VERSIONS)
    assert len(RECORDED) > 60


def test_recorded_batches_have_a_valid_crc_and_readable_records() -> None:
    codecs = set()
    for frame in all_frames():
        for batches in batches_in(frame):
            for position, header in iterate_headers(batches):
                assert check_crc(batches, position, header.size_bytes), str(frame)
                batch = batches[position : position + header.size_bytes]
                records = read_records(batch, bytes_max=RECORDS_BYTES_MAX)
                assert len(records) == header.record_count
                codecs.add(header.compression)
    assert codecs == {0, 1, 2, 3, 4}


def batches_in(frame: Frame) -> list[memoryview]:
    if frame.api_key == 0 and frame.direction == "request":
        position = read_request_header(frame.data).body_position
        request = read_all(ProduceRequest, frame.version, frame.data, position)
        found = [part.records for topic in request.topic_data for part in topic.partition_data]
    elif frame.api_key == 1 and frame.direction == "response":
        header_version = response_header_version(1, frame.version)
        _id, position = read_response_header(frame.data, header_version)
        response = read_all(FetchResponse, frame.version, frame.data, position)
        found = [part.records for topic in response.responses for part in topic.partitions]
    else:
        found = []
    return [memoryview(records) for records in found if isinstance(records, memoryview)]
