"""kafka-reassign-partitions with log dirs in its file, on brokers with two log dirs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lograft.cli.kafka.reassign import run
from lograft.cli.reassign import parse_log_dirs
from lograft.client.admin import TopicPartition, TopicPartitionReplica
from lograft.client.blocking import Admin
from lograft.model.errors import InvalidInput
from lograft.testing import Cluster

DIRS = ("/one", "/two")
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    properties = {"log.dirs": ",".join(DIRS), "metadata.log.dir": "/one"}
    with Cluster(nodes=2, properties=properties) as running:
        yield running


def plan(path: Path, replicas: list[int], log_dirs: list[str]) -> Path:
    partition = {"topic": "t", "partition": 0, "replicas": replicas, "log_dirs": log_dirs}
    file = path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return file


def run_tool(cluster: Cluster, file: Path, *options: str) -> int:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    return run([*server, "--reassignment-json-file", str(file), *options])


def dir_of(admin: Admin, broker: int) -> str:
    (path,) = (
        log_dir.path
        for log_dir in admin.describe_log_dirs([broker], partitions=[PARTITION])[broker]
        if PARTITION in log_dir.replicas and not log_dir.replicas[PARTITION].is_future
    )
    return path


def verify_until_completed(cluster: Cluster, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the output of --verify after the reassignment and all moves have completed."""
    for _ in range(1_000):
        assert run_tool(cluster, file, "--verify") == 0
        text = capsys.readouterr().out
        if "is still in progress" not in text:
            return text
        assert "is not being moved" not in text
        assert "Clearing" not in text
    raise AssertionError("the move was not completed")


def test_replicas_move_to_the_log_dirs_of_the_file(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(["t"])
        (holder,) = admin.describe_topics(["t"])["t"].partitions[0].replicas
        other = 3 - holder
        # Moves an existing replica, and one that the reassignment creates.
        before = dir_of(admin, holder)
        target = DIRS[1 - DIRS.index(before)]
        file = plan(tmp_path, [holder, other], [target, target])
        assert (
            run_tool(cluster, file, "--execute", "--replica-alter-log-dirs-throttle", "100000") == 0
        )
        text = capsys.readouterr().out
        assert "The replica-alter-dir throttle limit was set to 100000 B/s\n" in text
        assert "Successfully started partition reassignment for t-0\n" in text
        for broker in (holder, other):
            assert (
                f"Successfully started moving log directory to {target} for replica t-0 with"
                f" broker {broker} \n"
            ) in text
        text = verify_until_completed(cluster, file, capsys)
        assert f"Reassignment of replica t-0-{holder} completed successfully.\n" in text
        assert f"Reassignment of replica t-0-{other} completed successfully.\n" in text
        assert [dir_of(admin, broker) for broker in (holder, other)] == [target] * 2
        assert run_tool(cluster, file, "--cancel") == 0
        assert "None of the specified partition moves are active.\n" in capsys.readouterr().out
        back = plan(tmp_path, [holder, other], [before, "any"])
        assert run_tool(cluster, back, "--verify") == 0
        assert (
            f"Partition t-0 on broker {holder} is not being moved from log dir {target} to"
            f" {before}.\n"
        ) in capsys.readouterr().out


def test_an_unknown_log_dir_is_rejected(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(["t"])
        (holder,) = admin.describe_topics(["t"])["t"].partitions[0].replicas
    file = plan(tmp_path, [holder], ["/nonexistent"])
    assert run_tool(cluster, file, "--execute") == 1
    error = capsys.readouterr().err
    assert f"Failed to alter dir for t-0-{holder}" in error
    assert "LOG_DIR_NOT_FOUND" in error


def test_log_dirs_are_parsed(tmp_path: Path) -> None:
    text = plan(tmp_path, [1, 2, 3], ["any", "/b", "any"]).read_text()
    assert parse_log_dirs(text) == {TopicPartitionReplica("t", 0, 2): "/b"}
    with pytest.raises(InvalidInput, match="Size of replicas list"):
        parse_log_dirs(plan(tmp_path, [1, 2], ["any"]).read_text())
    with pytest.raises(InvalidInput, match="invalid reassignment"):
        parse_log_dirs("{}")
