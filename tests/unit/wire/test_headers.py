"""Headers in all their versions, and malformed ones."""

import pytest

from lograft.model.seams import FileSlice
from lograft.wire import codec
from lograft.wire.apis import API_VERSIONS, request_header_version, response_header_version
from lograft.wire.errors import MalformedMessage, UnsupportedVersion
from lograft.wire.headers import (
    HEADER_TAGS_MAX,
    RequestHeader,
    frame_request,
    frame_response,
    read_request_header,
    read_response_header,
    write_request_header,
)
from lograft.wire.messages.api_versions import ApiVersionsRequest
from lograft.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.wire.test_codec import StringFile

METADATA = 3


@pytest.mark.parametrize("client_id", [None, "", "tester", "grün"])
@pytest.mark.parametrize(("version", "header_version"), [(8, 1), (9, 2)])
def test_request_header_round_trip(
    version: int, header_version: int, client_id: str | None
) -> None:
    assert request_header_version(METADATA, version) == header_version
    data = write_request_header(METADATA, version, 77, client_id)
    read = read_request_header(memoryview(data + b"body"))
    assert read == RequestHeader(METADATA, version, 77, client_id, len(data))


def test_request_header_matches_kafka() -> None:
    assert write_request_header(METADATA, 9, 5, "ab") == bytes.fromhex(
        "0003000900000005000261 6200"
    )


def test_unknown_tags_in_the_header_are_skipped() -> None:
    data = write_request_header(METADATA, 9, 1, "a")[:-1] + b"\2\0\1x\7\3abc"
    assert read_request_header(data).body_position == len(data)


@pytest.mark.parametrize(
    "tags",
    [
        b"",
        b"\1",
        b"\1\0",
        b"\1\0\5abc",
        b"\2\1\0\1\0",
        b"\2\1\0\0\0",
        b"\x7f" + b"\0\0" * 200,
        b"\xff\xff\xff\xff\x0f" + b"\0\0" * 200,
        bytes([HEADER_TAGS_MAX + 1]) + b"".join(bytes([n, 0]) for n in range(65)),
        b"\1\xff\xff\xff\xff\xff\xff",
    ],
)
def test_invalid_tags_in_the_header_are_malformed(tags: bytes) -> None:
    head = write_request_header(METADATA, 9, 1, "a")[:-1]
    with pytest.raises(MalformedMessage):
        read_request_header(head + tags)
    with pytest.raises(MalformedMessage):
        read_response_header(b"\0\0\0\1" + tags, 1)


def test_truncated_headers_are_malformed() -> None:
    whole = write_request_header(METADATA, 9, 1, "client")
    for end in range(len(whole)):
        with pytest.raises(MalformedMessage):
            read_request_header(whole[:end])
    for end in range(4):
        with pytest.raises(MalformedMessage):
            read_response_header(bytes(end), 0)


def test_client_id_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        read_request_header(b"\0\3\0\1\0\0\0\1\0\2\xff\xfe")


def test_headers_of_unknown_apis_and_versions_are_read() -> None:
    head = read_request_header(b"\x7f\xff\0\1\0\0\0\x09\xff\xff")
    assert (head.api_key, head.correlation_id) == (0x7FFF, 9)
    newer = read_request_header(b"\0\x12\0\x63\0\0\0\x09\xff\xff\x7f")
    assert (newer.api_key, newer.api_version) == (18, 99)
    with pytest.raises(UnsupportedVersion):
        request_header_version(0x7FFF, 0)


def test_api_versions_has_response_header_0() -> None:
    assert response_header_version(18, 4) == 0
    assert response_header_version(18, 0) == 0
    assert response_header_version(METADATA, 9) == 1
    assert response_header_version(METADATA, 8) == 0


def test_frames_round_trip() -> None:
    frame = frame_request(MetadataRequest(topics=None), 9, correlation_id=3, client_id="me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head = read_request_header(frame[4:])
    assert codec.read_all(MetadataRequest, 9, frame[4:], head.body_position).topics is None
    for header_version, version in ((0, 8), (1, 9)):
        (response,) = frame_response(
            MetadataResponse(cluster_id="c"),
            version,
            correlation_id=4,
            header_version=header_version,
        )
        assert isinstance(response, bytes)
        assert int.from_bytes(response[:4], "big") == len(response) - 4
        correlation_id, position = read_response_header(response[4:], header_version)
        assert correlation_id == 4
        assert codec.read_all(MetadataResponse, version, response[4:], position).cluster_id == "c"


def test_size_of_a_response_includes_its_slices() -> None:
    inside = FileSlice(StringFile(b"x" * 900), 0, 900)
    topic = FetchableTopicResponse(partitions=[PartitionData(records=inside)])
    response = FetchResponse(responses=[topic])
    parts = frame_response(response, 17, correlation_id=8, header_version=1)
    first, second, third = parts
    assert second is inside
    assert isinstance(first, bytes)
    assert isinstance(third, bytes)
    assert int.from_bytes(first[:4], "big") == len(first) - 4 + 900 + len(third)
    assert first[9:] + b"x" * 900 + third == codec.write(response, 17)


def test_requests_with_records_are_framed() -> None:
    request = ApiVersionsRequest(client_software_name="s", client_software_version="1")
    frame = frame_request(request, 3, correlation_id=1, client_id=None)
    assert frame.endswith(codec.write(request, 3))


def test_only_one_version_is_unstable() -> None:
    unstable = {s.name: s.unstable_version for s in API_VERSIONS.values() if s.unstable_version}
    assert unstable == {"InitProducerId": 6}
    assert API_VERSIONS[22].max_version == 5
    assert API_VERSIONS[0].listeners == {"broker"}
    assert API_VERSIONS[52].listeners == {"controller"}
