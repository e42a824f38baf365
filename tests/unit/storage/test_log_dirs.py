from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.model.types import Offset, TopicPartition
from lograft.storage import log_dirs
from lograft.storage.errors import InvalidCheckpoint
from lograft.storage.log_dirs import MetaProperties
from lograft.storage.types import EpochEntry
from lograft.testing.memory import MemoryDisk

TP = TopicPartition("my-topic", 3)
ID = UUID(int=0x1234567890ABCDEF)


def make_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dir("d")
    disk.make_dir("e")
    return disk


def put(disk: MemoryDisk, path: str, text: str) -> None:
    disk.open(path, create=True).append(text.encode())


def test_checkpoints_read_as_written_in_kafkas_form() -> None:
    disk = make_disk()
    path = f"d/{log_dirs.RECOVERY_POINTS}"
    assert log_dirs.read_checkpoint(disk, path) == {}
    log_dirs.write_checkpoint(disk, path, {TP: 17, TopicPartition("b", 0): 0})
    assert disk.read(path) == b"0\n2\nmy-topic 3 17\nb 0 0\n"
    assert log_dirs.read_checkpoint(disk, path)[TP] == Offset(17)
    log_dirs.write_epochs(disk, "d", [EpochEntry(1, 0), EpochEntry(4, 9)])
    assert disk.read("d/leader-epoch-checkpoint") == b"0\n2\n1 0\n4 9\n"
    assert log_dirs.read_epochs(disk, "d") == [(1, 0), (4, 9)]


@pytest.mark.parametrize(
    "text", ["\n", "0", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n", "zero\n0\n"]
)
def test_damaged_checkpoints_are_named(text: str) -> None:
    disk = make_disk()
    put(disk, "d/c", text)
    with pytest.raises(InvalidCheckpoint, match="d/c"):
        log_dirs.read_checkpoint(disk, "d/c")


def test_a_checkpoint_that_kafka_left_empty_has_no_entries() -> None:
    disk = make_disk()
    put(disk, f"d/{log_dirs.LEADER_EPOCHS}", "")
    put(disk, "d/cleaner-offset-checkpoint", "")
    assert log_dirs.read_checkpoint(disk, "d/cleaner-offset-checkpoint") == {}
    # Without entries the epochs come from the batches.
    with pytest.raises(InvalidCheckpoint):
        log_dirs.read_epochs(disk, "d")


@given(st.binary(max_size=60))
def test_garbage_in_any_file_is_named(garbage: bytes) -> None:
    disk = make_disk()
    for name in (
        log_dirs.META_PROPERTIES,
        log_dirs.PARTITION_METADATA,
        log_dirs.LEADER_EPOCHS,
        log_dirs.MOVED_FROM,
        log_dirs.MOVING_TO,
    ):
        disk.open(f"d/{name}", create=True).append(garbage)
    for read in (
        log_dirs.read_meta_properties,
        log_dirs.read_partition_metadata,
        log_dirs.read_epochs,
        log_dirs.read_moved_from,
        log_dirs.read_moving_to,
    ):
        try:
            read(disk, "d")
        except InvalidCheckpoint:
            pass


def test_where_a_replica_was_and_where_it_goes() -> None:
    disk = make_disk()
    assert log_dirs.read_moved_from(disk, "d") == ()
    assert log_dirs.read_moving_to(disk, "d") is None
    ids = UUID(int=1), UUID(int=2)
    log_dirs.write_moved_from(disk, "d", ids)
    log_dirs.write_moving_to(disk, "d", ids[1])
    assert log_dirs.read_moved_from(disk, "d") == ids
    assert log_dirs.read_moving_to(disk, "d") == ids[1]
    log_dirs.remove_moving_to(disk, "d")
    assert log_dirs.read_moving_to(disk, "d") is None


def test_meta_properties() -> None:
    disk = make_disk()
    assert log_dirs.read_meta_properties(disk, "d") is None
    meta = MetaProperties(node_id=4, cluster_id="abc", directory_id=ID)
    log_dirs.write_meta_properties(disk, "d", meta)
    assert log_dirs.read_meta_properties(disk, "d") == meta
    put(disk, "e/meta.properties", "#\n#Sat Nov 14\nversion=0\nbroker.id=7\ncluster.id=x\\=y\n")
    old = log_dirs.read_meta_properties(disk, "e")
    assert old == MetaProperties(node_id=7, cluster_id="x=y", version=0)


def test_partition_metadata() -> None:
    disk = make_disk()
    assert log_dirs.read_partition_metadata(disk, "d") is None
    log_dirs.write_partition_metadata(disk, "d", ID)
    assert disk.read("d/partition.metadata").startswith(b"version: 0\ntopic_id: ")
    assert log_dirs.read_partition_metadata(disk, "d") == ID


def test_clean_shutdown_is_taken_once() -> None:
    disk = make_disk()
    assert log_dirs.consume_clean_shutdown(disk, "d") is None
    log_dirs.write_clean_shutdown(disk, "d", 42)
    assert log_dirs.consume_clean_shutdown(disk, "d") == 42
    assert log_dirs.consume_clean_shutdown(disk, "d") is None
    put(disk, "d/.kafka_cleanshutdown", "")
    assert log_dirs.consume_clean_shutdown(disk, "d") == -1


def test_folder_names() -> None:
    assert log_dirs.directory_name(TP) == "my-topic-3"
    assert log_dirs.parse_directory_name("my-topic-3") == TP
    deleted = log_dirs.deleted_directory_name(TP, ID)
    assert deleted == f"my-topic-3.{ID.hex}-delete"
    assert log_dirs.is_deleted_directory(deleted)
    assert log_dirs.parse_directory_name(deleted) is None
    assert log_dirs.parse_directory_name(log_dirs.future_directory_name(TP, ID)) is None
    for name in ("meta.properties", "topic", "-1", "a-b", "x-1.tmp"):
        assert log_dirs.parse_directory_name(name) is None
    long = TopicPartition("t" * 249, 0)
    assert len(log_dirs.deleted_directory_name(long, ID)) <= 255
