"""For any frame the router responds, or closes the connection with a reason."""

import struct
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.api.context import Context
from lograft.api.router import Router, Session, served_apis
from lograft.broker.shared_services import SharedServices
from lograft.model.exchange import CloseConnection, EncodedResponse
from lograft.model.seams import Address, Channel
from lograft.wire.apis import ApiSpec
from lograft.wire.errors import WireError
from lograft.wire.message import Message
from tests.support.clocks import OnlyClock

SERVED = served_apis("broker")


class Peer:
    peer = Address("10.0.0.1", 4711)


def no_response(context: Context, request: Message) -> None:
    return None


@pytest.fixture(scope="module")
def session() -> Session:
    router = Router(cast(SharedServices, OnlyClock()), None, listener="PLAINTEXT", served=SERVED)
    for spec in SERVED:
        router.route(spec.key).handle = no_response
    return router(cast(Channel, Peer()))


def handle(session: Session, frame: bytes) -> None:
    try:
        reply = session.handle_frame(memoryview(bytearray(frame)))
    except (CloseConnection, WireError):
        return
    assert reply is None or isinstance(reply, EncodedResponse)


@settings(max_examples=300, deadline=None)
@given(frame=st.binary(max_size=64))
def test_any_bytes_are_handled(session: Session, frame: bytes) -> None:
    handle(session, frame)


@settings(max_examples=600, deadline=None)
@given(
    spec=st.sampled_from(SERVED),
    version=st.integers(-1, 20),
    client_id=st.one_of(st.none(), st.binary(max_size=8)),
    body=st.one_of(
        st.binary(max_size=80),
        # Small counts and lengths get further than random ones.
        st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 127, 128, 255]), max_size=80).map(bytes),
    ),
)
def test_any_body_after_a_valid_header_is_handled(
    session: Session, spec: ApiSpec, version: int, client_id: bytes | None, body: bytes
) -> None:
    size = -1 if client_id is None else len(client_id)
    header = struct.pack(">hhih", spec.key, version, 7, size) + (client_id or b"")
    handle(session, header + body)
