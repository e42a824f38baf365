"""The golden bytes were written by Apache Kafka 4.3.1's storage tool with the same options."""

from pathlib import Path

import pytest

from lograft.broker.quorum.formatting import (
    BOOTSTRAP_FILE,
    FIRST_SNAPSHOT_FILE,
    METADATA_FOLDER,
    Controllers,
    FormatReport,
    FormatRequest,
    InitialControllers,
    NoInitialControllers,
    Standalone,
    check_identities,
    format_directories,
)
from lograft.model.errors import InvalidInput
from lograft.model.feature_levels import parse_release_version
from lograft.model.listeners import parse_initial_controllers
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.uuids import uuid_to_text
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.security.scram_credentials import parse_credential
from lograft.storage.log_dirs import read_meta_properties
from lograft.wire import record_frames as frames
from lograft.wire.batches import check_crc, iterate_headers, read_records
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.voters_record import VotersRecord

CLUSTER = "8XUwXa9qSyi9tSOquGtauQ"
VOTERS = "2@h2:9093:MvDxzVmcRsaTz33bUuRU6A,1@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
ALICE = (
    'SCRAM-SHA-512=[name=alice,iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E=",'
    'saltedpassword="Ja7J+oNcZe7NvPPuSWbIUwYS6Q+W9EFVPCkK8oElnOc="]'
)
#: --release-version 4.0 --add-scram <ALICE>
KAFKA_BOOTSTRAP = bytes.fromhex(
    "0000000000000000000000470000000002660f4fa5002000000000000001a1de1958f5000001a1de1958f5ff"
    "ffffffffffffffffffffffffff000000012a0000000800000003160000000000000000000000000000000000"
    "000001000001400000000002c44aa0ff000000000003000001a1de19591c000001a1de19591cffffffffffff"
    "ffffffffffffffff000000043a000000012e010c00116d657461646174612e76657273696f6e001900003400"
    "00020128010c000e67726f75702e76657273696f6e00010000400000040134010c00147472616e7361637469"
    "6f6e2e76657273696f6e00020000e60200000601d802010b0006616c696365021b316c763470646e77346677"
    "71376e6f7463786d307979316b377141077050d03608b8ae89a7d39ea74f1309c69952b69a36d963b5cc5fc0"
    "37da3f19fc9dbfd86c41bf9836d99dee8870ce055fba7132b4ee3e62046c6c81e71502db41f26cbc3ff860e0"
    "958d48b01f8ba459f33a438abffb4f32ceee4f30359f810b74a7f83d4eb1c5481c66da359955fe4a856f2057"
    "24b90d87ca4d7197a48e5390a600002000000000000000000000050000003f0000000002b77381e400200000"
    "0000000001a1de195922000001a1de195922ffffffffffffffffffffffffffff000000011a00000008000000"
    "040600000000"
)
#: --initial-controllers <VOTERS>
KAFKA_VOTERS = bytes.fromhex(
    "0000000000000000000000c70000000002c5f6dd88002000000002000001a1de195942000001a1de195942ff"
    "ffffffffffffffffffffffffff000000032a0000000800000003160000000001a1de19593300001e00000208"
    "000000050a000000010000dc010000040800000006c601000003000000012445d8e9aab3418fb7d8fe534adc"
    "da16020b434f4e54524f4c4c45520a6c6f63616c686f73742385000000000100000000000232f0f1cd599c46"
    "c693cf7ddb52e454e8020b434f4e54524f4c4c45520368322385000000000100000000000000000000000300"
    "00003f0000000002f6c2b0bf002000000000000001a1de19594f000001a1de19594fffffffffffffffffffff"
    "ffffffff000000011a00000008000000040600000000"
)
NOW_MS = 1_700_000_000_000
STANDALONE = Standalone()


def node(folder: object, *, dirs: str = "a,b", **settings: str) -> BrokerConfig:
    return broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": ",".join(f"{folder}/{name}" for name in dirs.split(",")),
        }
        | {name.replace("_", "."): text for name, text in settings.items()}
    )


def format_node(config: BrokerConfig, request: FormatRequest) -> FormatReport:
    return format_directories(
        RealDisk(), config, request, randomness=SystemRandomness(), now_ms=NOW_MS
    )


def request(controllers: Controllers | None = STANDALONE, **options: object) -> FormatRequest:
    return FormatRequest(cluster_id=CLUSTER, controllers=controllers, **options)  # type: ignore[arg-type]


def timeless(data: bytes) -> bytes:
    """The same with all timestamps, and the checksums over them, zeroed."""
    result = bytearray(data)
    for position, header in iterate_headers(data):
        assert check_crc(data, position, header.size_bytes)
        result[position + 17 : position + 21] = bytes(4)
        result[position + 27 : position + 43] = bytes(16)
    # The timestamp in the snapshot's header record.
    result[73:81] = bytes(8)
    return bytes(result)


def test_files_are_those_of_kafkas_tool(tmp_path: object) -> None:
    config = node(tmp_path, dirs="a")
    initial = InitialControllers(parse_initial_controllers(VOTERS))
    alice = parse_credential(ALICE, SystemRandomness())
    release = parse_release_version("4.0")
    format_node(config, request(initial, release=release, scram=(alice,)))
    disk = RealDisk()
    bootstrap = disk.read(f"{tmp_path}/a/{BOOTSTRAP_FILE}")
    assert timeless(bootstrap) == timeless(KAFKA_BOOTSTRAP)
    voters = disk.read(f"{tmp_path}/a/{METADATA_FOLDER}/{FIRST_SNAPSHOT_FILE}")
    assert timeless(voters) == timeless(KAFKA_VOTERS)
    meta = read_meta_properties(disk, f"{tmp_path}/a")
    assert meta is not None
    assert (meta.node_id, meta.cluster_id, meta.version) == (1, CLUSTER, 1)
    assert meta.directory_id is not None
    assert uuid_to_text(meta.directory_id) == "JEXY6aqzQY-32P5TStzaFg"


def records_in(path: str) -> list[object]:
    data = RealDisk().read(path)
    found: list[object] = []
    for position, header in iterate_headers(data):
        for record in read_records(
            data[position : position + header.size_bytes], bytes_max=1 << 20
        ):
            assert record.value is not None
            if header.is_control:
                assert record.key is not None
                number = frames.decode_control_key(record.key)
                found.append(frames.decode_control_value(number, record.value))
            else:
                found.append(frames.decode_record(record.value))
    return found


def features_in(path: str) -> dict[str, int]:
    found = [each for each in records_in(path) if isinstance(each, FeatureLevelRecord)]
    return {each.name: each.feature_level for each in found}


def test_a_quorum_of_one(tmp_path: object) -> None:
    config = node(tmp_path, metadata_log_dir=f"{tmp_path}/m")
    report = format_node(config, request())
    kinds = {directory.path.rpartition("/")[2]: directory.kind for directory in report.directories}
    assert kinds == {"a": "data", "b": "data", "m": "dynamic metadata voter"}
    assert report.metadata_version == "4.3-IV0"
    folder = f"{tmp_path}/m/{METADATA_FOLDER}"
    (voters,) = [
        each
        for each in records_in(f"{folder}/{FIRST_SNAPSHOT_FILE}")
        if isinstance(each, VotersRecord)
    ]
    own = {directory.path: directory.directory_id for directory in report.directories}
    assert voters.voters[0].voter_directory_id == own[f"{tmp_path}/m"]
    assert len(set(own.values())) == 3
    endpoint = voters.voters[0].endpoints[0]
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "localhost", 9093)
    assert not RealDisk().exists(f"{tmp_path}/a/{METADATA_FOLDER}")


@pytest.mark.parametrize(
    ("options", "features"),
    [
        (
            {},
            {
                "metadata.version": 30,
                "eligible.leader.replicas.version": 1,
                "group.version": 1,
                "share.version": 1,
                "streams.version": 1,
                "transaction.version": 2,
            },
        ),
        ({"release": 21}, {"metadata.version": 21}),
        (
            {"features": {"metadata.version": 25, "group.version": 0}},
            {"metadata.version": 25, "transaction.version": 2},
        ),
        (
            {"release": 15, "features": {"transaction.version": 1}},
            {"metadata.version": 15, "transaction.version": 1},
        ),
    ],
)
def test_features(tmp_path: object, options: dict[str, object], features: dict[str, int]) -> None:
    format_node(node(tmp_path), request(STANDALONE, **options))
    for name in ("a", "b"):
        assert features_in(f"{tmp_path}/{name}/{BOOTSTRAP_FILE}") == features


def test_a_static_quorum_has_no_first_snapshot(tmp_path: object) -> None:
    config = node(tmp_path, controller_quorum_voters="1@localhost:9093")
    report = format_node(config, request(None))
    assert [directory.kind for directory in report.directories] == ["metadata", "data"]
    assert not RealDisk().exists(f"{tmp_path}/a/{METADATA_FOLDER}")


def test_formatted_folders_are_kept(tmp_path: object) -> None:
    format_node(node(tmp_path, dirs="a"), request())
    before = RealDisk().read(f"{tmp_path}/a/meta.properties")
    config = node(tmp_path, dirs="a,b")
    with pytest.raises(InvalidInput, match="already formatted: use --ignore-formatted"):
        format_node(config, request())
    assert not RealDisk().exists(f"{tmp_path}/b")
    report = format_node(config, request(ignore_formatted=True))
    assert [directory.path for directory in report.directories] == [f"{tmp_path}/b"]
    assert RealDisk().read(f"{tmp_path}/a/meta.properties") == before
    assert format_node(config, request(ignore_formatted=True)).directories == ()
    assert len(check_identities(RealDisk(), config)) == 2


@pytest.mark.parametrize(
    ("settings", "asked", "sentence"),
    [
        ({}, request(None), "you must specify one of --standalone"),
        ({"controller_quorum_voters": "1@h:9093"}, request(), "makes the quorum static"),
        ({}, request(features={"kraft.version": 0}), "Cannot set kraft.version to 0"),
        (
            {"controller_quorum_voters": "1@h:9093"},
            request(NoInitialControllers(), features={"kraft.version": 1}),
            "Cannot set kraft.version to 1",
        ),
        ({}, request(features={"nonsense": 1}), "Unsupported feature: nonsense"),
        ({}, request(features={"group.version": 9}), "no level 9"),
        ({}, request(features={"metadata.version": 31}), "its levels are 7 to 30"),
        ({}, request(release=30, features={"metadata.version": 30}), "not both"),
        (
            {},
            request(release=15, features={"eligible.leader.replicas.version": 1}),
            "depends on metadata.version 4.0-IV1",
        ),
        ({}, FormatRequest(cluster_id="two words", controllers=Standalone()), "random-uuid"),
    ],
)
def test_refusals_write_nothing(
    tmp_path: object, settings: dict[str, str], asked: FormatRequest, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        format_node(node(tmp_path, **settings), asked)
    assert RealDisk().list_dir(str(tmp_path)) == []


def test_scram_needs_a_version_that_knows_it(tmp_path: object) -> None:
    alice = parse_credential(ALICE, SystemRandomness())
    with pytest.raises(InvalidInput, match=r"3\.5-IV2 or later"):
        format_node(node(tmp_path), request(release=8, scram=(alice,)))


def test_identities_are_checked_before_a_start(tmp_path: object) -> None:
    disk = RealDisk()
    with pytest.raises(InvalidInput, match="is not formatted: run 'lograft storage format"):
        check_identities(disk, node(tmp_path))
    format_node(node(tmp_path, dirs="a"), request())
    with pytest.raises(InvalidInput, match=r"belongs to node 1 but node\.id is 2"):
        check_identities(disk, node(tmp_path, node_id="2"))
    other = FormatRequest(cluster_id="other", controllers=Standalone())
    with pytest.raises(InvalidInput, match="belongs to cluster 8XUwXa9qSyi9tSOquGtauQ"):
        format_node(node(tmp_path, dirs="a,b"), other)
    format_node(node(tmp_path, dirs="b"), other)
    with pytest.raises(InvalidInput, match="must belong to one cluster"):
        check_identities(disk, node(tmp_path))


def test_a_log_dir_that_is_gone_or_empty_is_refused(tmp_path: object) -> None:
    """Otherwise its partitions would start again at offset 0 while their disk is not mounted."""
    disk = RealDisk()
    format_node(node(tmp_path, dirs="a"), request())
    for _ in ("gone", "empty"):
        with pytest.raises(
            InvalidInput, match=r"no meta\.properties found in .*/b: mount its disk"
        ):
            check_identities(disk, node(tmp_path, dirs="a,b"))
        disk.make_dir(f"{tmp_path}/b")


@pytest.mark.parametrize("dirs", ["taken", "taken/below"])
def test_a_file_in_the_place_of_a_log_dir_is_named(tmp_path: Path, dirs: str) -> None:
    (tmp_path / "taken").write_text("something")
    config = node(tmp_path, dirs=dirs)
    for use in (
        lambda: check_identities(RealDisk(), config),
        lambda: format_node(config, request()),
    ):
        with pytest.raises(InvalidInput, match=r"taken is a file: correct log\.dirs, or move"):
            use()


def test_a_copied_folder_is_found_out(tmp_path: object) -> None:
    disk = RealDisk()
    format_node(node(tmp_path, dirs="a"), request())
    disk.make_dir(f"{tmp_path}/b")
    copy = disk.open(f"{tmp_path}/b/meta.properties", create=True)
    copy.append(disk.read(f"{tmp_path}/a/meta.properties"))
    with pytest.raises(InvalidInput, match=r"the same directory\.id"):
        check_identities(disk, node(tmp_path))
