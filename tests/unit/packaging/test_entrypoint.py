"""How the container turns its environment into settings and commands."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from lograft.model.settings.broker import broker_config, unknown_settings
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    path = ROOT / "packaging" / "container" / "entrypoint.py"
    spec = importlib.util.spec_from_file_location("entrypoint", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_LOG__DIRS", "log_dirs"),
        ("KAFKA_LISTENER_NAME_CLIENT___1_SSL_TRUSTSTORE", "listener.name.client-1.ssl.truststore"),
    ],
)
def test_variables_are_named_as_in_kafkas_image(
    entrypoint: ModuleType, variable: str, setting: str
) -> None:
    assert entrypoint.setting_name(variable) == setting


def test_defaults_are_those_of_a_single_node(entrypoint: ModuleType) -> None:
    config = broker_config(entrypoint.node_settings({}, {}))
    assert unknown_settings(config) == ()


def test_variables_take_precedence_over_the_mounted_file(entrypoint: ModuleType) -> None:
    settings = entrypoint.node_settings(
        {"KAFKA_NUM_PARTITIONS": "3", "PATH": "/bin"},
        {"num.partitions": "5", "log.retention.hours": "1"},
    )
    assert settings["num.partitions"] == "3"
    assert settings["log.retention.hours"] == "1"
    assert "path" not in settings


def test_a_quorum_that_is_named_replaces_the_own_one(entrypoint: ModuleType) -> None:
    voters = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093"}
    settings = entrypoint.node_settings(voters, {})
    assert "controller.quorum.bootstrap.servers" not in settings
    assert "--standalone" not in entrypoint.format_command(settings, "id")
    alone = entrypoint.node_settings({}, {})
    assert "--standalone" in entrypoint.format_command(alone, "id")


def test_a_formatted_folder_keeps_its_cluster_id(entrypoint: ModuleType, tmp_path: Path) -> None:
    settings = {"log.dirs": f"{tmp_path}/new, {tmp_path}/old"}
    assert entrypoint.stored_cluster_id(settings) is None
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    assert entrypoint.stored_cluster_id(settings) == "abc"


@pytest.mark.parametrize(
    ("roles", "command"),
    [
        ("broker,controller", "cluster describe --bootstrap-server localhost:9192"),
        ("broker", "cluster describe --bootstrap-server localhost:9192"),
        (
            "controller",
            "kafka-metadata-quorum --bootstrap-controller localhost:9093 describe --status",
        ),
    ],
)
def test_the_health_check_uses_the_first_listener(
    entrypoint: ModuleType, roles: str, command: str
) -> None:
    settings = {
        "process.roles": roles,
        "listeners": "HOST://:9192, INTERNAL://:9094,CONTROLLER://[::1]:9093",
        "controller.listener.names": "CONTROLLER",
    }
    assert entrypoint.health_command(settings) == command.split()
