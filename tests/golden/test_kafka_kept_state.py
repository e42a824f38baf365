"""The internal logs of a Kafka with every type of group, quotas, ACLs, users and tokens."""

import pytest

from lograft.broker.coordinators.coordinator_records import RecordEntry, read_log
from lograft.coordination.group_shard import GroupShard
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType
from lograft.metadata.unenforced_state import describe_stored_features, describe_unenforced
from lograft.model.seams import Disk
from lograft.model.types import Offset
from lograft.storage.cleaner import Cleaning, find_cleanable
from lograft.storage.types import FixedLogConfig
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import iterate_headers
from lograft.wire.record_frames import GROUPS
from tests.golden.kafka_folders import Folder, unpack
from tests.golden.test_kafka_metadata import messages_in, replayed
from tests.unit.coordination.shard_driver import ShardDriver
from tests.unit.storage.logs import NOW_MS, flush, open_log

OFFSETS = "__consumer_offsets-0/00000000000000000000.log"
METADATA = "__cluster_metadata-0/00000000000000000000.log"
COMPACTED = FixedLogConfig(
    segment_bytes=1 << 20,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    file_delete_delay_ms=0,
)
GROUP_TYPES = {
    "eager": ("classic", "Empty"),
    "consumer": ("consumer", "Empty"),
    "share": ("share", "Stable"),
    "share-empty": ("share", "Empty"),
    "streams": ("streams", "Assigning"),
    "streams-empty": ("streams", "Empty"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return unpack("kept-state", tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def image(folder: Folder) -> MetadataImage:
    return replayed(messages_in(folder, METADATA))


def loaded(data: bytes) -> GroupShard:
    shard = GroupShard(ShardDriver().around)
    for entry in read_log(GROUPS, data):
        if isinstance(entry, RecordEntry):
            shard.replay(entry.record, offset=entry.offset)
    shard.on_loaded(0)
    return shard


def group_types(shard: GroupShard) -> dict[str, tuple[str, str]]:
    return {
        group_id: (group.kind.value, group.state_name) for group_id, group in shard.groups.items()
    }


def test_every_type_of_group_is_loaded(folder: Folder) -> None:
    shard = loaded((folder.data / OFFSETS).read_bytes())
    assert group_types(shard) == GROUP_TYPES
    for group_id in ("eager", "consumer"):
        positions = shard.offsets.of(group_id)["read-by-every-group"]
        assert [positions[partition].offset for partition in (0, 1)] == [4, 7]
    for group_id in ("streams", "streams-empty"):
        assert shard.offsets.of(group_id)["read-by-every-group"][0].offset == 3
    (note,) = shard.load_notes()
    assert note.startswith("keeps 2 share and 2 streams group(s)")


def test_compaction_keeps_groups_of_every_type(folder: Folder) -> None:
    data = (folder.data / OFFSETS).read_bytes()
    disk: Disk = MemoryDisk()
    log = open_log(disk, config=COMPACTED)
    for position, header in iterate_headers(memoryview(data)):
        log.append_as_follower(memoryview(bytearray(data[position : position + header.size_bytes])))
    before = newest_of(data)
    log.roll(NOW_MS)
    flush(log)
    cleanable = find_cleanable(
        log, first_dirty=Offset(0), now_ms=NOW_MS, high_watermark=log.end_offset
    )
    assert cleanable is not None
    cleaning = Cleaning(log, cleanable, now_ms=NOW_MS, keys_max=1000)
    cleaning.run()
    assert cleaning.swap_in(log)
    cleaned = b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)
    assert len(cleaned) < len(data)
    assert newest_of(cleaned) == before
    assert group_types(loaded(cleaned)) == GROUP_TYPES


def newest_of(data: bytes) -> dict[str, str]:
    """Returns key → value of everything that is not deleted."""
    found = {
        repr(entry.record.key): repr(entry.record.value)
        for entry in read_log(GROUPS, data)
        if isinstance(entry, RecordEntry)
    }
    return {key: value for key, value in found.items() if value != "None"}


def test_metadata_that_is_not_enforced_is_reported(image: MetadataImage) -> None:
    unenforced = describe_unenforced(image)
    assert list(unenforced) == ["ACLs", "tokens"]
    assert unenforced["ACLs"].startswith("4 ACLs are stored but not enforced")
    assert unenforced["tokens"].startswith("1 delegation token is stored but not used")
    assert list(describe_unenforced(image, has_authorizer=True)) == ["tokens"]
    assert list(describe_stored_features(image)) == ["features"]
    assert describe_stored_features(image)["features"].startswith(
        "share.version 1 and streams.version 1:"
    )
    empty = MetadataImage()
    assert not describe_unenforced(empty)
    assert not describe_stored_features(empty)


def test_image_keeps_all_records(image: MetadataImage) -> None:
    subscription = image.config_of(ResourceType.CLIENT_METRICS, "latencies")
    assert subscription == {"interval.ms": "30000", "metrics": "org.apache.kafka.producer."}
    again = replayed(list(image.records()))
    assert again.acls == image.acls
    assert again.client_quotas == image.client_quotas
    assert again.scram == image.scram
    assert again.delegation_tokens == image.delegation_tokens
    assert again.configs == image.configs
    assert again.features == image.features
