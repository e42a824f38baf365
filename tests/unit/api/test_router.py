"""The router with handlers of the test: every kind of result and error."""

import asyncio
import logging
import struct
import sys
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, cast

import pytest

from lograft.api.context import ANONYMOUS, Api, Context
from lograft.api.router import REQUESTS, Router, Session, served_apis
from lograft.api.types import NOTHING
from lograft.broker.client_quotas import ClientQuotas
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import NotController
from lograft.broker.shared_services import SharedServices
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply
from lograft.model.metrics import value_of
from lograft.model.seams import Address, Buffer, Channel, FileSlice
from lograft.model.types import Epoch, Offset
from lograft.wire.apis import API_VERSIONS, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.errors import MalformedMessage
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from lograft.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from tests.support.clocks import FakeClock, OnlyClock
from tests.unit.broker.bench import make_config

HEARTBEAT, OFFSET_DELETE, WRITE_TXN_MARKERS = 12, 47, 27
Handle = Callable[[Context, Any], Any]


class Peer:
    peer = Address("10.0.0.1", 4711)


class Calls:
    """Handlers that a test sets, in place of the modules of three APIs."""

    def __init__(self) -> None:
        self.heartbeat: Handle = lambda context, request: HeartbeatResponse()
        self.seen: list[tuple[Context, Message]] = []

    def handle(self, context: Context, request: Message) -> Any:
        self.seen.append((context, request))
        return self.heartbeat(context, request)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    for name in ("heartbeat", "offset_delete", "write_txn_markers"):
        module = ModuleType(f"lograft.api.{name}")
        module.handle = calls.handle  # type: ignore[attr-defined]
        module.API = Api(key=0, versions=range(0), needs=NOTHING)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


@pytest.fixture
def router(calls: Calls) -> Router:
    keys = (HEARTBEAT, OFFSET_DELETE, WRITE_TXN_MARKERS, 18)
    return Router(
        cast(SharedServices, OnlyClock()),
        None,
        listener="PLAINTEXT",
        served=tuple(API_VERSIONS[key] for key in keys),
    )


@pytest.fixture
def session(router: Router) -> Session:
    return router(cast(Channel, Peer()))


def frame(message: Message, version: int) -> memoryview:
    whole = frame_request(message, version, correlation_id=77, client_id="me")
    return memoryview(bytearray(whole))[4:]


def body_of(reply: object, key: int, version: int, kind: type[Any]) -> Any:
    assert isinstance(reply, EncodedResponse)
    data = b""
    for part in reply.parts:
        assert not isinstance(part, FileSlice)
        data += bytes(part)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return unpack(data[4:], key, version, kind)


def unpack(data: Buffer, key: int, version: int, kind: type[Any]) -> Any:
    correlation_id, position = read_response_header(data, response_header_version(key, version))
    assert correlation_id == 77
    return read_all(kind, version, data, position)


@pytest.mark.parametrize("version", range(5))
def test_plain_handler_responds_immediately(session: Session, calls: Calls, version: int) -> None:
    calls.heartbeat = lambda context, request: HeartbeatResponse(error_code=27)
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    reply = session.handle_frame(frame(request, version))
    assert body_of(reply, HEARTBEAT, version, HeartbeatResponse).error_code == 27
    ((context, seen),) = calls.seen
    assert seen == request
    assert context.api_key == HEARTBEAT
    assert context.api_version == version
    assert context.client_id == "me"
    assert context.listener == "PLAINTEXT"
    assert context.role == "broker"
    assert context.principal == ANONYMOUS
    assert context.peer == Address("10.0.0.1", 4711)
    assert context.authorizer is None


def run_waiting(reply: object) -> EncodedResponse | None:
    assert isinstance(reply, PendingReply)
    return asyncio.run(reply.response)


@pytest.mark.parametrize("allows_pipelining", [False, True])
def test_coroutine_is_awaited(session: Session, calls: Calls, allows_pipelining: bool) -> None:
    async def later() -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=25)

    def handle(context: Context, request: HeartbeatRequest) -> Coroutine[Any, Any, Message]:
        context.allows_pipelining = allows_pipelining
        return later()

    calls.heartbeat = handle
    reply = session.handle_frame(frame(HeartbeatRequest(), 4))
    assert isinstance(reply, PendingReply)
    assert reply.allows_pipelining is allows_pipelining
    response = run_waiting(reply)
    assert body_of(response, HEARTBEAT, 4, HeartbeatResponse).error_code == 25


def test_handlers_may_return_no_response(session: Session, calls: Calls) -> None:
    calls.heartbeat = lambda context, request: None
    assert session.handle_frame(frame(HeartbeatRequest(), 0)) is None

    async def no_response() -> None:
        return None

    calls.heartbeat = lambda context, request: no_response()
    assert run_waiting(session.handle_frame(frame(HeartbeatRequest(), 0))) is None


def test_expected_error_becomes_an_error_code(
    session: Session, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    def reject(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
        raise NotController("ask another")

    async def reject_later() -> HeartbeatResponse:
        raise NotController("ask another")

    calls.heartbeat = reject
    reply = session.handle_frame(frame(HeartbeatRequest(), 4))
    code = body_of(reply, HEARTBEAT, 4, HeartbeatResponse).error_code
    assert code == ErrorCode.NOT_CONTROLLER
    calls.heartbeat = lambda context, request: reject_later()
    response = run_waiting(session.handle_frame(frame(HeartbeatRequest(), 4)))
    assert body_of(response, HEARTBEAT, 4, HeartbeatResponse).error_code == ErrorCode.NOT_CONTROLLER
    assert caplog.records == []


def test_unexpected_exception_is_logged_once_and_has_a_response(
    session: Session, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        raise ZeroDivisionError("secret inside")

    calls.heartbeat = broken
    reply = session.handle_frame(frame(OffsetDeleteRequest(group_id="g"), 0))
    response = body_of(reply, OFFSET_DELETE, 0, OffsetDeleteResponse)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.records[0].exc_info is not None


def test_unexpected_exception_closes_if_the_response_has_no_error_code(
    session: Session, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(context: Context, request: Message) -> Message:
        raise ZeroDivisionError("secret inside")

    calls.heartbeat = broken
    with pytest.raises(CloseConnection) as caught:
        session.handle_frame(frame(WriteTxnMarkersRequest(), 1))
    assert "secret" not in str(caught.value)
    assert len(caplog.records) == 1


def test_handler_may_close_the_connection(session: Session, calls: Calls) -> None:
    async def close_later() -> Message:
        raise CloseConnection("later")

    def close(context: Context, request: Message) -> Message:
        raise CloseConnection("now")

    calls.heartbeat = close
    with pytest.raises(CloseConnection, match="now"):
        session.handle_frame(frame(HeartbeatRequest(), 0))
    calls.heartbeat = lambda context, request: close_later()
    with pytest.raises(CloseConnection, match="later"):
        run_waiting(session.handle_frame(frame(HeartbeatRequest(), 0)))


def test_response_that_cannot_be_encoded_closes(
    session: Session, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    calls.heartbeat = lambda context, request: HeartbeatResponse(error_code=1 << 20)
    with pytest.raises(CloseConnection):
        session.handle_frame(frame(HeartbeatRequest(), 0))
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("key", "version"), [(HEARTBEAT, 5), (HEARTBEAT, -1), (0, 3), (999, 0), (-1, 0)]
)
def test_unsupported_requests_close(session: Session, key: int, version: int) -> None:
    data = struct.pack(">hhih2s", key, version, 1, 2, b"\r\n") + bytes(20)
    with pytest.raises(CloseConnection):
        session.handle_frame(memoryview(bytearray(data)))


@pytest.mark.parametrize("cut", [0, 1, 9, 12, 14])
def test_truncated_request_is_malformed(session: Session, calls: Calls, cut: int) -> None:
    whole = frame(HeartbeatRequest(group_id="group"), 3)
    with pytest.raises(MalformedMessage):
        session.handle_frame(whole[:cut])
    assert calls.seen == []


class TickingClock(FakeClock):
    """Every look at the clock takes a millisecond."""

    def mono_ns(self) -> int:
        self.now_ms += 1
        return super().mono_ns()


def test_client_above_its_quota_gets_throttle_time_and_is_muted(calls: Calls) -> None:
    metadata = ClusterMetadata(make_config())
    quotas = ClientQuotas(metadata)
    shared = OnlyClock()
    shared.clock = TickingClock()
    router = Router(
        cast(SharedServices, shared),
        None,
        listener="PLAINTEXT",
        served=(API_VERSIONS[HEARTBEAT],),
        quotas=quotas,
    )
    handler = router(cast(Channel, Peer()))
    reply = handler.handle_frame(frame(HeartbeatRequest(), 1))
    assert isinstance(reply, EncodedResponse)
    assert reply.mute_ms == 0
    # The smallest share of the event loop: every request exceeds it.
    record = ClientQuotaRecord(
        entity=[EntityData(entity_type="client-id", entity_name="me")],
        key="request_percentage",
        value=1e-9,
    )
    metadata.on_committed(Offset(0), Epoch(1), [record])
    reply = handler.handle_frame(frame(HeartbeatRequest(), 1))
    assert body_of(reply, HEARTBEAT, 1, HeartbeatResponse).throttle_time_ms == 1_000
    assert isinstance(reply, EncodedResponse)
    assert reply.mute_ms == 1_000
    # Version 0 has no throttle time in the response, but the connection is muted too.
    reply = handler.handle_frame(frame(HeartbeatRequest(), 0))
    assert isinstance(reply, EncodedResponse)
    assert reply.mute_ms == 1_000


def test_newer_client_gets_the_supported_versions(session: Session) -> None:
    whole = frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    whole[2:4] = b"\x00\x09"
    reply = session.handle_frame(whole)
    response = body_of(reply, 18, 0, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    offered = [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]
    assert offered == [(18, 0, 4)]


def test_requests_are_counted(router: Router, session: Session) -> None:
    for _ in range(3):
        session.handle_frame(frame(HeartbeatRequest(), 0))
    assert value_of(router, REQUESTS, router.listener, "Heartbeat") == 3


def test_listener_serves_the_apis_of_its_role() -> None:
    brokers = {spec.name for spec in served_apis("broker")}
    controllers = {spec.name for spec in served_apis("controller")}
    assert "ApiVersions" in brokers & controllers
    assert "Produce" not in controllers
    assert {"Vote", "BeginQuorumEpoch"}.isdisjoint(brokers)
    withheld = {spec.name for spec in served_apis("broker", withheld=frozenset({18}))}
    assert withheld == brokers - {"ApiVersions"}
