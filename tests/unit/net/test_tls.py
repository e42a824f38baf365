"""TLS over real sockets: contents, slices, slow peers, and peers without TLS."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lograft.model.seams import Address, Channel, FileSlice
from lograft.net.errors import HandshakeTimedOut
from lograft.net.sockets import SocketTransport
from lograft.net.tls import TlsChannel, TlsTransport
from lograft.runtime.disk import RealDisk
from tests.support.scenarios import scenario
from tests.unit.net.certificates import make_certificate
from tests.unit.net.event_loops import run_on_loop
from tests.unit.net.receivers import Accepted, Collector

LOOPBACK = Address("127.0.0.1", 0)


def join_files(target: Path, *sources: str) -> Path:
    target.write_bytes(b"".join(Path(source).read_bytes() for source in sources))
    return target


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    certificate, key = make_certificate(tmp_path_factory.mktemp("tls"))
    client = ssl.create_default_context(cafile=certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, client


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@asynccontextmanager
async def pair(
    contexts: Contexts,
) -> AsyncIterator[tuple[Channel, Channel, Collector, Collector]]:
    server, client = contexts
    transport = TlsTransport(SocketTransport(), server=server, client=client)
    accepted = Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    peer = await transport.connect(listener.address, timeout_ms=5000)
    ours = await accepted.wait()
    at_ours, at_peer = Collector(), Collector()
    ours.start(at_ours)
    peer.start(at_peer)
    try:
        yield ours, peer, at_ours, at_peer
    finally:
        ours.abort()
        peer.abort()
        listener.close()
        await at_ours.wait_closed()
        await at_peer.wait_closed()


@scenario(run_on_loop)
async def test_bytes_and_slices_are_sent_in_both_directions(
    contexts: Contexts, tmp_path: Path
) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    content = os.urandom(2_000_000)
    file.append(content)
    async with pair(contexts) as (ours, peer, at_ours, at_peer):
        # Sent before the handshake is complete: it waits.
        peer.send([b"re", b"quest", content])
        await at_ours.wait_bytes(7 + len(content))
        assert at_ours.received == b"request" + content
        ours.send([b"head", FileSlice(file, 5, 1_500_000), b"tail"])
        await at_peer.wait_bytes(1_500_008)
        assert at_peer.received == b"head" + content[5:1_500_005] + b"tail"
        assert ours.unsent_bytes == 0
        assert isinstance(peer, TlsChannel)
        assert peer.peer_certificate() is not None


@scenario(run_on_loop)
async def test_slow_peer_does_not_accumulate_ciphertext(contexts: Contexts, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    size = 64 << 20
    file.truncate(size)
    async with pair(contexts) as (ours, peer, at_ours, at_peer):
        peer.send([b"hello"])
        await at_ours.wait_bytes(5)
        peer.pause_reading()
        ours.send([FileSlice(file, 0, size)])
        while not (below := ours._below.unsent_bytes):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        assert below < 1 << 20
        assert ours.unsent_bytes > 1 << 20
        assert at_ours.drained == 0
        peer.resume_reading()
        await at_ours.wait_until(lambda: at_ours.drained > 0)
        assert ours.unsent_bytes == 0
        await at_peer.wait_bytes(size)


@scenario(run_on_loop)
async def test_paused_channel_delivers_nothing(contexts: Contexts) -> None:
    async with pair(contexts) as (ours, peer, at_ours, at_peer):
        ours.pause_reading()
        peer.send([bytes(100_000)])
        ours.send([b"ping"])
        await at_peer.wait_bytes(4)
        assert at_ours.received == b""
        ours.resume_reading()
        await at_ours.wait_bytes(100_000)


@scenario(run_on_loop)
async def test_close_notify_is_sent_after_queued_bytes(contexts: Contexts) -> None:
    async with pair(contexts) as (ours, peer, at_ours, at_peer):
        peer.send([b"hello"])
        await at_ours.wait_bytes(5)
        data = os.urandom(3_000_000)
        ours.send([data])
        ours.close()
        await at_peer.wait_closed()
        assert at_peer.received == data
        assert at_peer.closed_with == [None]
        await at_ours.wait_closed()
        assert at_ours.closed_with == [None]


@scenario(run_on_loop)
async def test_peer_without_tls_is_rejected(contexts: Contexts) -> None:
    transport = TlsTransport(SocketTransport(), server=contexts[0])
    accepted = Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    plain = await SocketTransport().connect(listener.address, timeout_ms=5000)
    at_plain, at_ours = Collector(), Collector()
    plain.start(at_plain)
    (await accepted.wait()).start(at_ours)
    plain.send([b"\x00\x00\x00\x12\x00\x12\x00\x03 plain kafka"])
    await at_ours.wait_closed()
    assert isinstance(at_ours.closed_with[0], ssl.SSLError)
    await at_plain.wait_closed()
    assert at_ours.received == b""
    listener.close()


@scenario(run_on_loop)
async def test_handshake_has_a_timeout(contexts: Contexts) -> None:
    accepted = Accepted()
    listener = await SocketTransport().listen(LOOPBACK, accepted)
    with socket.create_connection((listener.address.host, listener.address.port)):
        below = await accepted.wait()
        channel = TlsChannel(below, lambda: contexts[0], server_side=True, handshake_timeout_ms=10)
        collector = Collector()
        channel.start(collector)
        await collector.wait_closed()
        assert isinstance(collector.closed_with[0], HandshakeTimedOut)
    listener.close()


@scenario(run_on_loop)
async def test_untrusted_certificate_is_rejected(contexts: Contexts) -> None:
    stranger = ssl.create_default_context()
    transport = TlsTransport(SocketTransport(), server=contexts[0], client=stranger)
    accepted = Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    peer = await transport.connect(listener.address, timeout_ms=5000)
    at_peer, at_ours = Collector(), Collector()
    peer.start(at_peer)
    (await accepted.wait()).start(at_ours)
    peer.send([b"secret"])
    await at_peer.wait_closed()
    assert isinstance(at_peer.closed_with[0], ssl.SSLCertVerificationError)
    await at_ours.wait_closed()
    assert at_ours.received == b""
    listener.close()


@pytest.mark.parametrize("shows_certificate", [False, True])
@scenario(run_on_loop)
async def test_listener_may_request_the_clients_certificate(
    tmp_path: Path, shows_certificate: bool
) -> None:
    certificate, key = make_certificate(tmp_path)
    both = join_files(tmp_path / "both.pem", key, certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.load_verify_locations(certificate)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certificate)
    if shows_certificate:
        client.load_cert_chain(str(both))

    async with pair((server, client)) as (ours, peer, at_ours, at_peer):
        peer.send([b"hello"])
        if shows_certificate:
            await at_ours.wait_bytes(5)
            assert isinstance(ours, TlsChannel)
            assert ours.peer_certificate() is not None
        else:
            await at_ours.wait_closed()
            assert isinstance(at_ours.closed_with[0], ssl.SSLError)
            assert at_ours.received == b""
        assert at_peer.received == b""
