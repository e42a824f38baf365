from uuid import UUID

import pytest

from lograft.cli.metadata_shell import Shell, ShellError
from lograft.cli.metadata_tree import Folder, metadata_tree
from lograft.metadata.image import MetadataImage
from lograft.model.types import NO_EPOCH, Epoch, Offset, ReplicationMode
from lograft.wire.message import Message
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord


def tree_of(*records: Message) -> Folder:
    image = MetadataImage()
    first = FeatureLevelRecord(name="metadata.version", feature_level=30)
    image.apply([first, *records], offset=Offset(57), epoch=Epoch(1))
    return metadata_tree(image, time_ms=1_794_728_207_429)


def shell(*records: Message) -> Shell:
    return Shell(tree_of(*records))


def run(shell: Shell, line: str) -> list[str]:
    return list(shell.run_line(line))


TOPIC = TopicRecord(name="t", topic_id=UUID(int=7))


def test_an_empty_image() -> None:
    assert run(shell(), "tree /image/cluster /image/scram /image/producerIds") == [
        "brokers:",
        "controllers:",
        "SCRAM-SHA-256:",
        "SCRAM-SHA-512:",
        "nextProducerId:",
        "  -1",
    ]
    assert run(shell(), "cat /image/provenance") == [
        "offset 57, epoch 1, time 2026-11-15T07:36:47.429Z[UTC]"
    ]


def test_acls_quotas_and_configs_are_shown_as_in_kafkas_shell() -> None:
    opened = shell(
        AccessControlEntryRecord(
            id=UUID(int=5),
            resource_type=2,
            resource_name="foo",
            pattern_type=4,
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        ),
        ClientQuotaRecord(
            entity=[
                EntityData(entity_type="user", entity_name="a(b)\\c"),
                EntityData(entity_type="client-id", entity_name="x"),
            ],
            key="consumer_byte_rate",
            value=5.0,
        ),
        ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
        ConfigRecord(resource_type=16, resource_name="sub", name="b", value="2"),
    )
    assert run(opened, "cat /image/acls/byId/*") == [
        "StandardAcl[resourceType=TOPIC, resourceName=foo, patternType=PREFIXED, principal=User:x,"
        " host=*, operation=READ, permissionType=ALLOW]"
    ]
    assert run(opened, "ls /image/clientQuotas") == [r"clientId(x)_user(a\(b\)\\c)"]
    assert run(opened, "ls /image/configs") == ["BROKER", "CLIENT_METRICS:sub"]


@pytest.mark.parametrize(
    ("mode", "life", "shown"),
    [
        (ReplicationMode.ISR, NO_EPOCH, "partitionEpoch=0)"),
        (ReplicationMode.RAFT, 3, "partitionEpoch=0, replicationMode=RAFT, raftLife=3)"),
        (ReplicationMode.LEAVING, 3, "partitionEpoch=0, replicationMode=LEAVING, raftLife=3)"),
        (ReplicationMode.ISR, 3, "partitionEpoch=0, replicationMode=ISR, raftLife=3)"),
    ],
)
def test_a_partition_that_has_been_in_raft_mode_shows_its_mode(
    mode: ReplicationMode, life: int, shown: str
) -> None:
    partition = PartitionRecord(
        partition_id=0,
        leader_epoch=0,
        partition_epoch=0,
        topic_id=TOPIC.topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        directories=[UUID(int=200)],
        replication_mode=mode,
        raft_life=life,
    )
    (line,) = run(shell(TOPIC, partition), "cat /image/topics/byName/t/0")
    assert line.endswith(shown)


def test_navigation() -> None:
    opened = shell(TOPIC)
    assert run(opened, "pwd") == ["/"]
    assert run(opened, "cd image/topics/byName") == []
    assert run(opened, "ls") == ["t"]
    assert run(opened, "cat t/name ../byId/*/name") == ["t", "t"]
    assert run(opened, "find") == [".", "./t", "./t/id", "./t/name"]
    assert run(opened, "cd ../..") == []
    assert run(opened, "pwd") == ["/image"]
    assert run(opened, "ls topics features") == [
        "/image/topics:",
        "byId",
        "byName",
        "\n/image/features:",
        "metadataVersion",
    ]
    assert run(opened, "cd") == []
    assert run(opened, "pwd") == ["/"]
    assert run(opened, "") == []
    assert run(opened, "history 2") == ["    9  pwd", "   10  history 2"]
    assert "ls [PATH…]" in run(opened, "help")[0]
    assert run(opened, "man ls") == ["ls [PATH…]     list folders"]
    assert run(opened, "exit") == []
    assert opened.is_done


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("foo", "unknown command 'foo'"),
        ("cat", "specify a file"),
        ("cat /image", "is a folder"),
        ("cat /nope", "/nope: no such file or folder"),
        ("ls /image/x*", "no such file"),
        ("cd /image/provenance", "not a folder"),
        ("ls 'unfinished", "cannot parse the line"),
        ("history x", "number"),
        ("man nothing", "specify a command"),
    ],
)
def test_errors(line: str, message: str) -> None:
    with pytest.raises(ShellError, match=message):
        run(shell(), line)


def test_completion() -> None:
    opened = shell(TOPIC)
    assert opened.complete("/im") == ["/image/"]
    assert opened.complete("image/top") == ["image/topics/"]
    assert opened.complete("/image/prov") == ["/image/provenance"]
    assert opened.complete("/nope/x") == []
    assert opened.complete("l") == ["local/"]
