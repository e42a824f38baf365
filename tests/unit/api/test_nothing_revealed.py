"""Every API in every version, sent by a principal without any permission: nothing is changed, and
what exists cannot be distinguished from what does not.

The cluster has a topic, a group and a transaction whose names are canaries, and another principal
whose requests have left patterns for the fast paths. Each request is sent with the canaries and
with names of the same length that do not exist; apart from these names the responses are equal.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import pytest

from lograft.api.router import served_apis
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection, PendingReply
from lograft.model.seams import FileSlice
from lograft.security.authorization import (
    GROUP_READ,
    TOPIC_READ,
    TOPIC_WRITE,
    TRANSACTIONAL_ID_WRITE,
)
from lograft.wire.apis import ApiSpec, request_class
from lograft.wire.errors import WireError
from lograft.wire.headers import frame_request
from lograft.wire.message import Field, Message
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.unit.api import transactions_bench
from tests.unit.api.secured_bench import ADMIN, USER, acl_of, add_acls, as_user, secure
from tests.unit.api.test_secured_fast_paths import (
    MALLORY,
    fetch,
    fetch_request,
    produce,
    produce_request,
    served,
)
from tests.unit.broker.bench import Bench, batch_of, decoded

TOPIC, GROUP, TRANSACTION = "canary-topic", "canary-group", "canary-txn"
ABSENT: Final = {TOPIC: "absent-topic", GROUP: "absent-group", TRANSACTION: "absent-txn"}
UNKNOWN_ID: Final = UUID(int=0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF)
#: Permissions that only nodes have are checked before these APIs look at anything.
SPECS: Final = {
    (spec.key, role): spec for role in ("broker", "controller") for spec in served_apis(role)
}
RECORDS: Final = batch_of(b"v")
#: Fields that select a kind of resource, coordinator or change, with the values to try.
SELECTORS: Final = {
    "resource_type": (2, 4, 8, 16, 32),
    "resource_type_filter": (1, 2),
    "key_type": (0, 1, 2),
    "config_resource_type": (2,),
    "resource_types": (),
}
#: Name no resources, and limit how often a client may send them.
LIMITED: Final = {"GetTelemetrySubscriptions", "PushTelemetry"}
#: Bytes that differ from one response to the next have to be the same.
FIXED: Final = {"session_epoch": -1, "timeout_ms": 5_000, "acks": 1, "max_wait_ms": 0}


class Variant(NamedTuple):
    """How the fields of a request are filled."""

    #: In all strings; empty: that which the name of the field suggests.
    name: str
    #: "filled", or "null" (where lists may be) or "empty", which select everything.
    lists: str
    selector: int | None


def variants(selectors: tuple[int, ...]) -> Iterator[Variant]:
    for selector in selectors or (None,):
        for name in ("", TOPIC, GROUP, TRANSACTION):
            yield Variant(name, "filled", selector)
        for lists in ("null", "empty"):
            yield Variant("", lists, selector)


def selectors_of(kind: type[Message], version: int) -> tuple[int, ...]:
    found: tuple[int, ...] = ()
    for field in kind.FIELDS:
        if field.is_in(version):
            found += SELECTORS.get(field.name, ())
            if isinstance(field.element, type):
                found += selectors_of(field.element, version)
    return tuple(dict.fromkeys(found))


def filled(kind: type[Message], version: int, variant: Variant, topic_id: UUID) -> Message:
    return kind(
        **{
            field.name: value_of(field, version, variant, topic_id)
            for field in kind.FIELDS
            if field.is_in(version) and field.tag < 0
        }
    )


def value_of(field: Field, version: int, variant: Variant, topic_id: UUID) -> Any:
    if field.name in FIXED:
        return FIXED[field.name]
    if field.name in SELECTORS and variant.selector is not None and field.kind != "array":
        return variant.selector
    match field.kind:
        case "array":
            if variant.lists == "null" and field.is_nullable_in(version):
                return None
            if variant.lists == "empty":
                return []
            if isinstance(field.element, type):
                return [filled(field.element, version, variant, topic_id)]
            return {
                "string": [name_for(field.name, variant)],
                "int32": [0],
                "uuid": [topic_id],
            }.get(cast(str, field.element), [])
        case "string":
            return name_for(field.name, variant)
        case "uuid":
            return topic_id
        case "records":
            return RECORDS
        case "bool":
            return field.name.startswith("include") or field.new_default()
        case _:
            return field.new_default()


def name_for(field: str, variant: Variant) -> str:
    if variant.name:
        return variant.name
    if "group" in field:
        return GROUP
    if "transactional" in field:
        return TRANSACTION
    return TOPIC


def absent(data: bytes) -> bytes:
    for name, other in ABSENT.items():
        data = data.replace(name.encode(), other.encode())
    return data


async def outcome(bench: Bench, frame: bytes, role: str) -> bytes:
    """The bytes of the response; for a connection that is closed, the reason."""
    try:
        reply = decoded(bench.session(role).handle_frame(memoryview(bytearray(frame))))
        if isinstance(reply, PendingReply):
            reply = await reply.response
    except (CloseConnection, WireError) as error:
        return f"closed: {error}".encode()
    if reply is None:
        return b"nothing"
    assert not any(isinstance(part, FileSlice) for part in reply.parts), "records were returned"
    return b"".join(cast(bytes, part) for part in reply.parts)


def state_of(bench: Bench) -> dict[str, int]:
    """Everything that a request could change."""
    state: dict[str, int] = {
        str(partition.topic_partition): partition.high_watermark
        for partition in bench.broker.partitions
    }
    return state | {"metadata": bench.broker.image.offset}


async def fill(bench: Bench) -> None:
    await bench.create_topic(TOPIC)
    committed = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
        ],
    )
    response = await bench.ask(committed, 8, OffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == 0
    assert (await transactions_bench.init(bench, TRANSACTION)).error_code == 0
    secure(bench)
    await add_acls(
        bench,
        acl_of(TOPIC_READ, TOPIC),
        acl_of(TOPIC_WRITE, TOPIC),
        acl_of(GROUP_READ, GROUP),
        acl_of(TRANSACTIONAL_ID_WRITE, TRANSACTION),
    )
    for _ in range(2):
        assert (await produce(bench, TOPIC), await fetch(bench, TOPIC)) == (0, 0)
    assert served(bench) == (1, 1)
    as_user(bench, MALLORY)


def requests_of(spec: ApiSpec, version: int, topic_id: UUID) -> Iterator[tuple[Variant, Message]]:
    kind = request_class(spec.key)
    for variant in variants(selectors_of(kind, version)):
        yield variant, filled(kind, version, variant, topic_id)


def frame_of(request: Message, version: int) -> bytes:
    return frame_request(request, version, correlation_id=7, client_id="test")[4:]


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_existing_names_are_not_distinguished_from_others(role: str) -> None:
    specs = [spec for (_, own), spec in SPECS.items() if own == role]
    checked = 0

    async def scenario(bench: Bench) -> None:
        nonlocal checked
        await fill(bench)
        before = state_of(bench)
        for spec in specs:
            for version in range(spec.min_version, spec.max_version + 1):
                for variant, request in requests_of(spec, version, UNKNOWN_ID):
                    frame = frame_of(request, version)
                    what = f"{spec.name} {version} {variant}"
                    existing = await outcome(bench, frame, role)
                    missing = await outcome(bench, absent(frame), role)
                    if spec.name not in LIMITED:
                        assert absent(existing) == missing, what
                    assert_not_revealed(existing, frame, what)
                    checked += 1
            assert state_of(bench) == before, spec.name
        assert served(bench) == (1, 1)

    transactions_bench.play(scenario)
    assert checked > 500 or role == "controller"


def assert_not_revealed(response: bytes, frame: bytes, what: str) -> None:
    """The response has no canary that the request did not have."""
    for name in ABSENT:
        if name.encode() not in frame:
            assert name.encode() not in response, what


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_topic_ids_do_not_reveal_names(role: str) -> None:
    """As in Kafka, a principal that knows the id of a topic, a random number, can find out that it
    exists, but not its name."""
    specs = [spec for (_, own), spec in SPECS.items() if own == role]

    async def scenario(bench: Bench) -> None:
        await fill(bench)
        before = state_of(bench)
        topic_id = bench.topic_id(TOPIC)
        for spec in specs:
            for version in range(spec.min_version, spec.max_version + 1):
                for variant, request in requests_of(spec, version, topic_id):
                    frame = absent(frame_of(request, version))
                    response = await outcome(bench, frame, role)
                    assert_not_revealed(response, frame, f"{spec.name} {version} {variant}")
            assert state_of(bench) == before, spec.name

    transactions_bench.play(scenario)


def test_metrics_have_no_name_that_only_a_denied_request_has() -> None:
    """Names that clients invent must not become labels."""

    async def scenario(bench: Bench) -> None:
        await fill(bench)
        for spec in served_apis("broker"):
            for version in (spec.min_version, spec.max_version):
                for _, request in requests_of(spec, version, UNKNOWN_ID):
                    await outcome(bench, absent(frame_of(request, version)), "broker")
        texts = repr(list(bench.broker.collect_samples()))
        for name in ABSENT.values():
            assert name not in texts

    transactions_bench.play(scenario)


def test_fast_paths_do_not_serve_the_requests_of_another_principal() -> None:
    async def scenario(bench: Bench) -> None:
        await fill(bench)
        frames = [
            frame_of(produce_request(bench, TOPIC), 13),
            frame_of(fetch_request(bench, TOPIC), 18),
        ]
        for frame in frames:
            response = await outcome(bench, frame, "broker")
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")
            assert denied in response
        assert served(bench) == (1, 1)
        as_user(bench, USER)
        assert await produce(bench, TOPIC) == 0
        assert served(bench)[0] == 2

    transactions_bench.play(scenario)


def test_the_requests_show_a_difference_to_a_super_user() -> None:
    """Otherwise the other tests would prove nothing."""
    reading = {
        "Metadata",
        "ListOffsets",
        "OffsetFetch",
        "OffsetForLeaderEpoch",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeLogDirs",
        "DescribeProducers",
        "DescribeTopicPartitions",
        "DescribeTransactions",
        "ListGroups",
        "ListTransactions",
    }
    found: set[str] = set()

    async def scenario(bench: Bench) -> None:
        await fill(bench)
        as_user(bench, ADMIN)
        for spec in served_apis("broker"):
            if spec.name in reading:
                for _, request in requests_of(spec, spec.max_version, UNKNOWN_ID):
                    frame = frame_of(request, spec.max_version)
                    existing = await outcome(bench, frame, "broker")
                    missing = await outcome(bench, absent(frame), "broker")
                    revealed = any(
                        name.encode() in existing and name.encode() not in frame for name in ABSENT
                    )
                    if absent(existing) != missing or revealed:
                        found.add(spec.name)

    transactions_bench.play(scenario)
    assert found == reading
