"""Disks that are full, turn read-only or lose their folder: what was acknowledged stays, the right
error goes out, healthy log dirs serve on, and a node that cannot go on says why in a sentence.
"""

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
ROOMY_BYTES: Final = 64 << 20
VALUE_BYTES: Final = 20_000
SENDS_MAX: Final = 1_000
ENDS_SECONDS_MAX: Final = 15.0
PATIENCE_SECONDS: Final = 10.0


class Writer:
    """Remembers what was acknowledged, and finds it again."""

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

    def send_until_refused(self, tp: TopicPartition) -> int | None:
        """The error code; None when the node went away instead of answering."""
        for _ in range(SENDS_MAX):
            try:
                self.send(tp)
            except ErrorResponse as error:
                return error.code
            except OSError:
                return None
        raise AssertionError(f"{tp} takes {SENDS_MAX} records of {VALUE_BYTES} bytes")

    def check_all_there(self) -> None:
        """Every record at its offset; others, whose answer was lost, may be there too."""
        for tp, wanted in self.acknowledged.items():
            found: dict[int, str] = {}
            position, end = 0, max(wanted) + 1
            while position < end:
                got = self.client.fetch(tp, position)
                assert not got.bad_crc
                assert got.next_offset > position, f"{tp}: nothing at {position}, {end} were there"
                found.update(got.records)
                position = got.next_offset
            missing = {offset: uid for offset, uid in wanted.items() if found.get(offset) != uid}
            assert not missing


def ended(server: Server) -> str:
    """Waits for the node to end by itself and returns its last words."""
    assert server.has_ended_within(ENDS_SECONDS_MAX), "the node runs on without a disk"
    assert server.process is not None
    assert server.process.returncode not in (0, -6, -9, -11)
    server.process = None
    return last_words(server)


def last_words(server: Server) -> str:
    text = server.log_path.read_text()
    assert "Traceback" not in text, text[-4000:]
    assert "LOGRAFT_TRACE" not in text, text[-4000:]  # that is how it speaks of its own bugs
    return text.strip().rpartition("\n")[2]


def until_it_works(work: Callable[[], None]) -> None:
    """A node that has just come up may refuse for a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
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


def test_a_full_log_dir_takes_only_its_partitions(
    new_node: Callable[..., Server], tmp_path: Path
) -> None:
    full = tmp_path / "full"
    with tmpfs(full, size_bytes=SMALL_BYTES):
        server = new_node()
        server.settings["log.dirs"] = f"{server.data},{full}"
        server.start()
        writer = Writer(server.port)
        until_it_works(lambda: writer.client.create_topic("t", partitions=4))
        until_it_works(lambda: writer.send(TopicPartition("t", 3)))
        healthy, doomed = partitions_in(server.data, "t"), partitions_in(full, "t")
        assert len(healthy) == len(doomed) == 2
        for tp in healthy + doomed:
            until_it_works(lambda tp=tp: writer.send(tp))  # type: ignore[misc]

        assert writer.send_until_refused(doomed[0]) == ErrorCode.KAFKA_STORAGE_ERROR

        for tp in doomed:
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
            until_it_works(lambda index=index: writer.send(TopicPartition("later", index)))  # type: ignore[misc]
        assert (
            f"log dir {full} goes offline: [Errno 28] No space left" in server.log_path.read_text()
        )

        server.stop()
        last_words(server)
        run("mount", "-o", f"remount,size={ROOMY_BYTES}", full)
        server.start()
        until_it_works(writer.check_all_there)
        for tp in healthy + doomed:
            writer.send(tp)
        server.kill()
        server.start()
        until_it_works(writer.check_all_there)
        writer.client.close()
        server.kill()


@pytest.mark.parametrize("flush", [{}, {"flush.messages": "1"}], ids=["page cache", "fsync"])
def test_a_node_whose_only_log_dir_is_full_stops_and_says_why(
    new_node: Callable[..., Server], flush: dict[str, str]
) -> None:
    server = new_node()
    with tmpfs(server.data, size_bytes=SMALL_BYTES):
        server.start()
        writer = Writer(server.port)
        until_it_works(lambda: writer.client.create_topic("t", configs=flush))
        until_it_works(lambda: writer.send(TopicPartition("t", 0)))

        assert writer.send_until_refused(TopicPartition("t", 0)) in (
            ErrorCode.KAFKA_STORAGE_ERROR,
            None,
        )

        assert "No space left on device" in ended(server)
        # Still full: it may serve or refuse, in a sentence; it must not make things worse.
        server.launch()
        if server.has_ended_within(2):
            assert "No space left on device" in ended(server)
        else:
            server.kill()
            last_words(server)
        run("mount", "-o", f"remount,size={ROOMY_BYTES}", server.data)
        server.start()
        until_it_works(writer.check_all_there)
        until_it_works(lambda: writer.send(TopicPartition("t", 0)))
        server.stop()
        server.start()
        until_it_works(writer.check_all_there)
        writer.client.close()
        server.kill()


def test_a_full_metadata_dir_stops_the_node_and_keeps_every_topic(
    new_node: Callable[..., Server], tmp_path: Path
) -> None:
    metadata = tmp_path / "metadata"
    with tmpfs(metadata, size_bytes=200_000):
        server = new_node(settings={"metadata.log.dir": str(metadata)})
        server.start()
        created = []
        with RawClient(server.port) as client:
            until_it_works(lambda: client.create_topic("t"))
            for number in range(SENDS_MAX):
                try:
                    client.create_topic(f"topic-{number}", partitions=20)
                except (OSError, ErrorResponse):
                    break
                created.append(f"topic-{number}")

        assert "No space left on device" in ended(server)
        run("mount", "-o", f"remount,size={ROOMY_BYTES}", metadata)
        server.start()
        with RawClient(server.port) as client:
            assert set(created) <= set(client.topics())
            until_it_works(lambda: client.create_topic("afterwards"))
        server.kill()


def test_a_disk_that_turns_read_only_stops_the_node(
    new_node: Callable[..., Server], tmp_path: Path
) -> None:
    server = new_node()
    disk = LoopDisk(tmp_path / "disk", server.data)
    disk.mount("errors=remount-ro")
    try:
        server.start()
        writer = Writer(server.port)
        tp = TopicPartition("t", 0)
        until_it_works(lambda: writer.client.create_topic("t", configs={"flush.messages": "1"}))
        until_it_works(lambda: writer.send(tp))
        for _ in range(20):
            writer.send(tp)
        run("mount", "-o", "remount,abort", server.data)

        assert writer.send_until_refused(tp) in (ErrorCode.KAFKA_STORAGE_ERROR, None)

        words = ended(server)
        assert "Read-only file system" in words or "Input/output error" in words, words
        server.launch()
        assert "Traceback" not in ended(server)
        disk.unmount()
        disk.repair()
        disk.mount("errors=remount-ro")
        server.start()
        until_it_works(writer.check_all_there)
        writer.client.close()
    finally:
        server.kill()
        disk.unmount()


def test_a_deleted_data_folder_ends_in_a_sentence(new_node: Callable[..., Server]) -> None:
    server = new_node()
    server.start()
    writer = Writer(server.port)
    until_it_works(lambda: writer.client.create_topic("t"))
    until_it_works(lambda: writer.send(TopicPartition("t", 0)))
    shutil.rmtree(server.data)
    try:
        writer.client.create_topic("another")
    except (ErrorResponse, OSError):
        pass  # it may be quicker to end than to answer
    assert "No such file or directory" in ended(server)
    # A folder that is gone is not formatted again behind the operator's back.
    done = subprocess.run(
        [*lograft_command(), "server", str(server.properties_path)],
        capture_output=True,
        text=True,
        timeout=ENDS_SECONDS_MAX,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert str(server.data) in done.stderr
    writer.client.close()
