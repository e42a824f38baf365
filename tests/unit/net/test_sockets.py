"""Raw sockets: bytes, slices of files, back-pressure, ends, and listeners."""

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from lograft.model.seams import Address, Channel, FileSlice, Part
from lograft.net import channels
from lograft.net.channels import address_of
from lograft.net.socket_listener import SocketListener
from lograft.net.sockets import SocketTransport
from lograft.runtime.disk import RealDisk
from tests.support.scenarios import scenario
from tests.unit.net.event_loops import run_on_loop
from tests.unit.net.receivers import Accepted, Collector, RunOnLoop

LOOPBACK = Address("127.0.0.1", 0)


@asynccontextmanager
async def pair(
    *, address: Address = LOOPBACK
) -> AsyncIterator[tuple[Channel, Channel, Collector, Collector]]:
    """Yields two started channels, ours and the peer's, with their receivers."""
    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(address, accepted)
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
async def test_bytes_are_sent_in_both_directions() -> None:
    async with pair() as (ours, peer, at_ours, at_peer):
        peer.send([b"ab", bytearray(b"cd"), b"", memoryview(b"ef")])
        ours.send([b"answer"])
        await at_ours.wait_bytes(6)
        await at_peer.wait_bytes(6)
        assert at_ours.received == b"abcdef"
        assert at_peer.received == b"answer"
        assert ours.peer == peer.local
        assert ours.local == peer.peer


@scenario(run_on_loop)
async def test_slices_of_files_are_sent_between_bytes(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    content = os.urandom(3_000_000)
    file.append(content)
    async with pair() as (ours, _, _, at_peer):
        parts: list[Part] = [
            b"head",
            FileSlice(file, 10, 2_900_000),
            b"mid",
            FileSlice(file, 0, 7),
            b"end",
        ]
        expected = b"head" + content[10:2_900_010] + b"mid" + content[:7] + b"end"
        ours.send(parts)
        # The slice keeps the file open: no other reference is needed.
        del file, parts
        await at_peer.wait_bytes(len(expected))
        assert at_peer.received == expected
        assert ours.unsent_bytes == 0


@scenario(run_on_loop)
async def test_file_system_without_sendfile_is_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sendfile", unsupported)

    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    content = os.urandom(700_000)
    file.append(content)
    async with pair() as (ours, _, _, at_peer):
        ours.send([FileSlice(file, 0, 700_000)])
        await at_peer.wait_bytes(700_000)
        assert at_peer.received == content


@scenario(run_on_loop)
async def test_truncated_file_closes_the_connection(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append(b"short")
    async with pair() as (ours, _, at_ours, at_peer):
        ours.send([b"10 bytes follow:", FileSlice(file, 0, 10)])
        await at_ours.wait_closed()
        await at_peer.wait_closed()
        assert "file ends" in str(at_ours.closed_with[0])


@scenario(run_on_loop)
async def test_bytes_that_the_kernel_does_not_accept_are_sent_later() -> None:
    async with pair() as (ours, peer, at_ours, at_peer):
        peer.pause_reading()
        total = 0
        chunk = os.urandom(1 << 20)
        while not ours.unsent_bytes:
            ours.send([chunk[:500_000], chunk[500_000:]])
            total += len(chunk)
        ours.send([b"tail"])
        assert at_ours.drained == 0
        assert at_peer.received == b""
        peer.resume_reading()
        await at_ours.wait_until(lambda: at_ours.drained == 1)
        assert ours.unsent_bytes == 0
        await at_peer.wait_bytes(total + 4)
        assert at_peer.received == chunk * (total >> 20) + b"tail"


@scenario(run_on_loop)
async def test_paused_channel_is_not_read() -> None:
    async with pair() as (ours, peer, at_ours, at_peer):
        ours.pause_reading()
        peer.send([b"x"])
        # An exchange that takes at least as long as the byte would take.
        ours.send([b"ping"])
        await at_peer.wait_bytes(4)
        assert at_ours.received == b""
        ours.resume_reading()
        await at_ours.wait_bytes(1)


@scenario(run_on_loop)
async def test_one_wakeup_reads_a_limited_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "READ_BYTES_PER_WAKE", 3000)

    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    flooder = await transport.connect(listener.address, timeout_ms=5000)
    flooder.send([bytes(30_000)])
    channel = await accepted.wait()
    # All of it is in the receive buffer before the first read.
    raw = channel._socket  # type: ignore[attr-defined]
    while len(raw.recv(40_000, socket.MSG_PEEK)) < 30_000:
        await asyncio.sleep(0)
    flooded = Collector(buffer_bytes=1000)
    channel.start(flooded)
    reads = [0]
    while len(flooded.received) < 30_000:
        await asyncio.sleep(0)
        reads.append(flooded.reads)
    assert max(after - before for before, after in pairwise(reads)) == 3
    flooder.abort()
    channel.abort()
    listener.close()


@scenario(run_on_loop)
async def test_end_of_stream_closes_the_channel() -> None:
    async with pair() as (ours, peer, at_ours, at_peer):
        peer.send([b"last words"])
        peer.close()
        await at_ours.wait_closed()
        assert at_ours.received == b"last words"
        assert at_ours.closed_with == [None]
        await at_peer.wait_closed()
        ours.send([b"into the void"])
        ours.close()
        ours.abort()
    assert at_ours.closed_with == [None]
    assert at_peer.closed_with == [None]


@scenario(run_on_loop)
async def test_close_sends_queued_bytes_first() -> None:
    async with pair() as (ours, peer, at_ours, at_peer):
        peer.pause_reading()
        sent = 0
        while not ours.unsent_bytes:
            ours.send([bytes(1 << 20)])
            sent += 1 << 20
        ours.close()
        ours.send([b"too late"])
        peer.resume_reading()
        await at_peer.wait_closed()
        assert len(at_peer.received) == sent
        await at_ours.wait_closed()
        assert at_ours.closed_with == [None]


@scenario(run_on_loop)
async def test_closed_channel_does_not_linger_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_LINGER_S", 0.01)

    async with pair() as (ours, peer, at_ours, _):
        peer.pause_reading()
        while not ours.unsent_bytes:
            ours.send([bytes(1 << 20)])
        ours.close()
        await at_ours.wait_closed()
        assert ours.unsent_bytes == 0


@scenario(run_on_loop)
async def test_reset_is_reported_to_the_receiver() -> None:
    async with pair() as (ours, peer, at_ours, _):
        raw = peer._socket  # type: ignore[attr-defined]
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.abort()
        await at_ours.wait_closed()
        assert isinstance(at_ours.closed_with[0], ConnectionResetError)
        ours.resume_reading()
        ours.pause_reading()


@scenario(run_on_loop)
async def test_failed_send_closes_after_the_call() -> None:
    async with pair() as (ours, peer, at_ours, _):
        ours.pause_reading()
        raw = peer._socket  # type: ignore[attr-defined]
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.abort()
        while not at_ours.closed_with:
            ours.send([b"x" * 100_000])
            await asyncio.sleep(0)
        assert isinstance(at_ours.closed_with[0], OSError)


@scenario(run_on_loop)
async def test_channel_may_be_closed_before_it_starts() -> None:
    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    channel = await transport.connect(listener.address, timeout_ms=5000)
    channel.close()
    collector = Collector()
    channel.start(collector)
    await collector.wait_closed()
    (await accepted.wait()).abort()
    listener.close()


@pytest.mark.parametrize(
    ("raw", "address"),
    [
        (("10.0.0.1", 5), Address("10.0.0.1", 5)),
        (("::ffff:10.0.0.1", 5, 0, 0), Address("10.0.0.1", 5)),
        (("fe80::1%eth0", 5, 0, 2), Address("fe80::1", 5)),
        (("::1", 5, 0, 0), Address("::1", 5)),
    ],
)
def test_addresses_are_normalized(raw: tuple[object, ...], address: Address) -> None:
    assert address_of(raw) == address


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@needs_ipv6
@scenario(run_on_loop)
async def test_ipv6_connections() -> None:
    async with pair(address=Address("::1", 0)) as (ours, peer, at_ours, _):
        peer.send([b"six"])
        await at_ours.wait_bytes(3)
        assert ours.peer.host == "::1"
        assert str(ours.peer).startswith("[::1]:")


@needs_ipv6
@pytest.mark.parametrize("host", ["", "::"])
@scenario(run_on_loop)
async def test_all_interfaces_accept_both_families(host: str) -> None:
    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(Address(host, 0), accepted)
    port = listener.address.port
    assert port > 0
    four = await transport.connect(Address("127.0.0.1", port), timeout_ms=5000)
    six = await transport.connect(Address("::1", port), timeout_ms=5000)
    await accepted.wait(2)
    assert sorted(channel.peer.host for channel in accepted.channels) == ["127.0.0.1", "::1"]
    listener.close()
    for channel in (four, six, *accepted.channels):
        channel.abort()


@scenario(run_on_loop)
async def test_host_name_binds_all_its_addresses() -> None:
    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(Address("localhost", 0), accepted)
    channel = await transport.connect(Address("localhost", listener.address.port), timeout_ms=5000)
    await accepted.wait()
    listener.close()
    channel.abort()
    accepted.channels[0].abort()


@scenario(run_on_loop)
async def test_error_names_the_port_in_use() -> None:
    transport = SocketTransport()
    listener = await transport.listen(LOOPBACK, Accepted())
    with pytest.raises(OSError, match=f"127.0.0.1:{listener.address.port}"):
        await transport.listen(listener.address, Accepted())
    listener.close()


@scenario(run_on_loop)
async def test_refused_connection_raises() -> None:
    transport = SocketTransport()
    listener = await transport.listen(LOOPBACK, Accepted())
    address = listener.address
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await transport.connect(address, timeout_ms=5000)


def test_connection_timeout_raises(on_loop: RunOnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        class NeverConnects:
            getaddrinfo = staticmethod(loop.getaddrinfo)

            @staticmethod
            async def sock_connect(*_: object) -> None:
                await asyncio.Event().wait()

        monkeypatch.setattr("lograft.net.sockets.asyncio.get_running_loop", NeverConnects)
        try:
            with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:9 within 10 ms"):
                await SocketTransport().connect(Address("127.0.0.1", 9), timeout_ms=10)
        finally:
            monkeypatch.undo()

    with asyncio.Runner() as runner:
        runner.run(main())


@scenario(run_on_loop)
async def test_accepting_pauses_when_descriptors_run_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accepts = 0
    exhausted = True
    real_accept = socket.socket.accept

    def accept(listening: socket.socket) -> tuple[socket.socket, object]:
        nonlocal accepts
        accepts += 1
        if exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_accept(listening)

    monkeypatch.setattr("lograft.net.socket_listener._ACCEPT_PAUSE_S", 0.05)
    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    monkeypatch.setattr(socket.socket, "accept", accept)
    with caplog.at_level(logging.WARNING):
        channel = await transport.connect(listener.address, timeout_ms=5000)
        while not accepts:
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        tries_while_resting = accepts
        exhausted = False
        # The connection waited in the backlog.
        await accepted.wait()
    assert tries_while_resting == 1
    assert [record.getMessage() for record in caplog.records if "Too many" in record.message]
    listener.close()
    channel.abort()
    accepted.channels[0].abort()


@scenario(run_on_loop)
async def test_paused_listener_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    def accept(_: socket.socket) -> tuple[socket.socket, object]:
        nonlocal tried
        tried += 1
        raise OSError(errno.ENFILE, "Too many open files in system")

    transport = SocketTransport()
    listener = await transport.listen(LOOPBACK, Accepted())
    monkeypatch.setattr(socket.socket, "accept", accept)
    channel = await transport.connect(listener.address, timeout_ms=5000)
    while not tried:
        await asyncio.sleep(0)
    listener.close()
    channel.abort()


class Witness(Collector):
    """Records the order in which several channels are read."""

    def __init__(self, name: str, reads: list[str]) -> None:
        super().__init__(buffer_bytes=1 << 20)
        self._name = name
        self._reads = reads
        self.largest = 0

    def on_received(self, count: int) -> None:
        self._reads.append(self._name)
        self.largest = max(self.largest, count)
        super().on_received(count)


@scenario(run_on_loop)
async def test_small_requests_overtake_a_bulk_sender() -> None:
    transport, accepted = SocketTransport(), Accepted()
    listener = await transport.listen(LOOPBACK, accepted)
    reads: list[str] = []
    senders: list[Channel] = []
    witnesses: list[Witness] = []
    for name in ("bulk", "small"):
        sender = await transport.connect(listener.address, timeout_ms=5000)
        sender.start(Collector())
        witness = Witness(name, reads)
        (await accepted.wait(len(senders) + 1)).start(witness)
        senders.append(sender)
        witnesses.append(witness)
    bulk, small = senders
    sent = 0
    # The kernel's window opens slowly.
    while witnesses[0].largest <= channels.READ_BYTES_PER_WAKE:
        bulk.send([bytes(1 << 20)])
        sent += 1 << 20
        await witnesses[0].wait_bytes(sent)
    reads.clear()
    # Both have data in the loop's next iteration, the bulk sender first.
    bulk.send([bytes(1000)])
    small.send([b"s"])
    await witnesses[0].wait_bytes(sent + 1000)
    assert reads == ["small", "bulk"]
    listener.close()
    for channel in (*senders, *accepted.channels):
        channel.abort()
    for witness in witnesses:
        await witness.wait_closed()


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux shows the backlog")
@pytest.mark.parametrize("host", ["127.0.0.1", ""])
@scenario(run_on_loop)
async def test_backlog_of_a_listener_is_set(host: str) -> None:
    listener = await SocketTransport(backlog=7).listen(Address(host, 0), Accepted())
    assert isinstance(listener, SocketListener)
    try:
        # For a listening socket, tcpi_sacked is its backlog.
        info = listener._sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        assert struct.unpack_from("=I", info, 28) == (7,)
    finally:
        listener.close()
