"""Disks that become full or read-only, or lose their folder: acknowledged records are kept, clients
get the correct error, other log dirs continue to serve, and a node that cannot continue reports the
reason in one sentence."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from tests.chaos.mounts import LoopDisk, run, tmpfs
from tests.chaos.payloads import value_of
from tests.chaos.raw_client import ErrorResponse, RawClient, batch_of
from tests.compatibility.servers import Server, lograft_command

pytestmark = [pytest.mark.chaos]
SMALL_BYTES: Final = 3 << 20
LARGE_BYTES: Final = 64 << 20
VALUE_BYTES: Final = 20_000
SENDS_MAX: Final = 1_000
EXIT_SECONDS_MAX: Final = 15.0
RETRY_SECONDS_MAX: Final = 10.0


class Writer:
    """Remembers acknowledged records, and verifies that they exist."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port, name="writer")
        self.acknowledged: dict[TopicPartition, dict[int, str]] = {}
        self._count = 0

    def send(self, tp: TopicPartition, *, value_bytes: int = VALUE_BYTES) -> None:
        uid = f"w-{self._count}"
        self._count += 1
        batch = batch_of([value_of(uid, value_bytes)], now_ms=time.time_ns() // 1_000_000)
        offset = self.client.produce(tp, batch)
        self.acknowledged.setdefault(tp, {})[offset] = uid

    def send_until_error(self, tp: TopicPartition) -> int | None:
        """Returns the error code, or None if the connection broke."""
        for _ in range(SENDS_MAX):
            try:
                self.send(tp)
            except ErrorResponse as error:
                return error.code
            except OSError:
                return None
        raise AssertionError(f"{tp} accepted {SENDS_MAX} records of {VALUE_BYTES} bytes")

    def check_all_exist(self) -> None:
        """Checks that every acknowledged record is at its offset; other records may exist, too."""
        for tp, expected in self.acknowledged.items():
            found: dict[int, str] = {}
            position, end = 0, max(expected) + 1
            while position < end:
                fetched = self.client.fetch(tp, position)
                assert not fetched.bad_crc
                assert fetched.next_offset > position, (
                    f"{tp}: no records at {position}, expected {end}"
                )
                found.update(fetched.records)
                position = fetched.next_offset
            missing = {offset: uid for offset, uid in expected.items() if found.get(offset) != uid}
            assert not missing


def wait_for_exit(server: Server) -> str:
    """Waits until the node exits by itself, and returns the last line of its output."""
    assert server.has_ended_within(EXIT_SECONDS_MAX), "the node is still running without a disk"
    assert server.process is not None
    assert server.process.returncode not in (0, -6, -9, -11)
    server.process = None
    return last_line_of(server)


def last_line_of(server: Server) -> str:
    text = server.log_path.read_text()
    assert "Traceback" not in text, text[-4000:]
    assert "LOGRAFT_TRACE" not in text, text[-4000:]  # printed only for bugs
    return text.strip().rpartition("\n")[2]


def retry(work: Callable[[], None]) -> None:
    """Retries, because a node may reject requests for a moment after its start."""
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        try:
            return work()
        except (OSError, ErrorResponse):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def partitions_in(log_dir: Path, topic: str) -> list[TopicPartition]:
    return [
        TopicPartition(topic, int(path.name.rpartition("-")[2]))
        for path in sorted(log_dir.glob(f"{topic}-*"))
        if path.name.rpartition("-")[2].isdigit()
    ]


def test_full_log_dir_affects_only_its_partitions(
    new_node: Callable[..., Server], tmp_path: Path
) -> None:
    full = tmp_path / "full"
    with tmpfs(full, size_bytes=SMALL_BYTES):
        server = new_node()
        server.settings["log.dirs"] = f"{server.data},{full}"
        server.start()
        writer = Writer(server.port)
        retry(lambda: writer.client.create_topic("t", partitions=4))
        retry(lambda: writer.send(TopicPartition("t", 3)))
        healthy, affected = partitions_in(server.data, "t"), partitions_in(full, "t")
        assert len(healthy) == len(affected) == 2
        for tp in healthy + affected:
            retry(lambda tp=tp: writer.send(tp))  # type: ignore[misc]

        assert writer.send_until_error(affected[0]) == ErrorCode.KAFKA_STORAGE_ERROR

        for tp in affected:
            with pytest.raises(ErrorResponse, match="KAFKA_STORAGE_ERROR"):
                writer.client.fetch(tp, 0)
            with pytest.raises(ErrorResponse, match="KAFKA_STORAGE_ERROR"):
                writer.send(tp)
        for tp in healthy:
            writer.send(tp)
            assert writer.client.fetch(tp, 0).records
        writer.client.create_topic("later", partitions=3)
        assert partitions_in(full, "later") == []
        for index in range(3):
            retry(lambda index=index: writer.send(TopicPartition("later", index)))  # type: ignore[misc]
        assert f"log dir {full} is offline: [Errno 28] No space left" in server.log_path.read_text()

        server.stop()
        last_line_of(server)
        run("mount", "-o", f"remount,size={LARGE_BYTES}", full)
        server.start()
        retry(writer.check_all_exist)
        for tp in healthy + affected:
            writer.send(tp)
        server.kill()
        server.start()
        retry(writer.check_all_exist)
        writer.client.close()
        server.kill()


@pytest.mark.parametrize("flush", [{}, {"flush.messages": "1"}], ids=["page cache", "fsync"])
def test_node_with_a_full_log_dir_exits_with_the_reason(
    new_node: Callable[..., Server], flush: dict[str, str]
) -> None:
    server = new_node()
    with tmpfs(server.data, size_bytes=SMALL_BYTES):
        server.start()
        writer = Writer(server.port)
        retry(lambda: writer.client.create_topic("t", configs=flush))
        retry(lambda: writer.send(TopicPartition("t", 0)))

        assert writer.send_until_error(TopicPartition("t", 0)) in (
            ErrorCode.KAFKA_STORAGE_ERROR,
            None,
        )

        assert "No space left on device" in wait_for_exit(server)
        # The disk is still full: the node may serve or exit with one sentence, but must lose no
        # records.
        server.launch()
        if server.has_ended_within(2):
            assert "No space left on device" in wait_for_exit(server)
        else:
            server.kill()
            last_line_of(server)
        run("mount", "-o", f"remount,size={LARGE_BYTES}", server.data)
        server.start()
        retry(writer.check_all_exist)
        retry(lambda: writer.send(TopicPartition("t", 0)))
        server.stop()
        server.start()
        retry(writer.check_all_exist)
        writer.client.close()
        server.kill()


def test_full_metadata_dir_stops_the_node_and_keeps_every_topic(
    new_node: Callable[..., Server], tmp_path: Path
) -> None:
    metadata = tmp_path / "metadata"
    with tmpfs(metadata, size_bytes=200_000):
        server = new_node(settings={"metadata.log.dir": str(metadata)})
        server.start()
        created = []
        with RawClient(server.port) as client:
            retry(lambda: client.create_topic("t"))
            for number in range(SENDS_MAX):
                try:
                    client.create_topic(f"topic-{number}", partitions=20)
                except (OSError, ErrorResponse):
                    break
                created.append(f"topic-{number}")

        assert "No space left on device" in wait_for_exit(server)
        run("mount", "-o", f"remount,size={LARGE_BYTES}", metadata)
        server.start()
        with RawClient(server.port) as client:
            assert set(created) <= set(client.topics())
            retry(lambda: client.create_topic("afterwards"))
        server.kill()


def test_read_only_disk_stops_the_node(new_node: Callable[..., Server], tmp_path: Path) -> None:
    server = new_node()
    disk = LoopDisk(tmp_path / "disk", server.data)
    disk.mount("errors=remount-ro")
    try:
        server.start()
        writer = Writer(server.port)
        tp = TopicPartition("t", 0)
        retry(lambda: writer.client.create_topic("t", configs={"flush.messages": "1"}))
        retry(lambda: writer.send(tp))
        for _ in range(20):
            writer.send(tp)
        run("mount", "-o", "remount,abort", server.data)

        assert writer.send_until_error(tp) in (ErrorCode.KAFKA_STORAGE_ERROR, None)

        line = wait_for_exit(server)
        assert "Read-only file system" in line or "Input/output error" in line, line
        server.launch()
        assert "Traceback" not in wait_for_exit(server)
        disk.unmount()
        disk.repair()
        disk.mount("errors=remount-ro")
        server.start()
        retry(writer.check_all_exist)
        writer.client.close()
    finally:
        server.kill()
        disk.unmount()


def test_deleted_data_folder_is_reported_in_one_sentence(new_node: Callable[..., Server]) -> None:
    server = new_node()
    server.start()
    writer = Writer(server.port)
    retry(lambda: writer.client.create_topic("t"))
    retry(lambda: writer.send(TopicPartition("t", 0)))
    shutil.rmtree(server.data)
    try:
        writer.client.create_topic("another")
    except (ErrorResponse, OSError):
        pass  # it may exit before it responds
    assert "No such file or directory" in wait_for_exit(server)
    # A missing folder must not be formatted again automatically.
    result = subprocess.run(
        [*lograft_command(), "server", str(server.properties_path)],
        capture_output=True,
        text=True,
        timeout=EXIT_SECONDS_MAX,
    )
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert str(server.data) in result.stderr
    writer.client.close()
