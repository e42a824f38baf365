"""`lograft start --secure`: what is rejected before a node starts, and the settings."""

import json
from pathlib import Path

import pytest

from lograft.cli.node_runner import embedded_properties, start_embedded
from lograft.cli.secure_node import client_properties, secure_properties, start_secure
from lograft.client.administering.settings import AdminSettings
from lograft.model.errors import InvalidInput
from lograft.model.properties import parse_properties
from lograft.model.seams import Address
from lograft.model.settings.broker import broker_config, unknown_settings
from lograft.model.settings.jaas import parse_jaas
from lograft.storage.log_dirs import META_PROPERTIES

META = "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n"


def make_secure(folder: Path) -> None:
    (folder / "log").mkdir(parents=True)
    (folder / "log" / META_PROPERTIES).write_text(META)


@pytest.mark.parametrize("place", [META_PROPERTIES, f"node-1/data/{META_PROPERTIES}"])
def test_a_directory_without_security_is_rejected(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(META)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput, match="was formatted without --secure"):
        start_secure(str(tmp_path), 0, None)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_secure_directory_is_not_started_without_security(tmp_path: Path) -> None:
    make_secure(tmp_path)
    with pytest.raises(InvalidInput, match="contains a secure node: start it with --secure"):
        start_embedded(str(tmp_path), 0)


def test_the_password_of_the_node_is_not_replaced_silently(tmp_path: Path) -> None:
    make_secure(tmp_path)
    with pytest.raises(InvalidInput, match=r"node\.json is missing: restore it"):
        start_secure(str(tmp_path), 0, None)
    (tmp_path / "node.json").write_text(json.dumps({"host": None}))
    with pytest.raises(InvalidInput, match=r"node\.json is damaged"):
        start_secure(str(tmp_path), 0, None)


def test_a_comma_in_the_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot contain a comma"):
        start_secure(str(tmp_path / "a,b"), 0, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("host", "bound"), [("node1", ""), ("10.0.0.1", ""), ("localhost", "localhost"), ("::1", "::1")]
)
def test_a_loopback_address_is_not_exposed(tmp_path: Path, host: str, bound: str) -> None:
    config = broker_config(secure_properties(tmp_path, 9092, host, "p"))
    by_name = {endpoint.name: endpoint for endpoint in config.listeners}
    assert by_name["SASL_SSL"].host == bound
    assert by_name["CONTROLLER"].host == "localhost"
    assert all(endpoint.security.name == "SASL_SSL" for endpoint in config.listeners)
    assert [endpoint.host for endpoint in config.advertised_listeners] == [host]
    assert not unknown_settings(config)


def test_a_password_of_the_administrator_is_quoted() -> None:
    text = client_properties(Address("h", 1), 'a"b\\c', Path("/data/ca.pem"))
    settings = parse_properties(text)
    AdminSettings.read(settings)
    entry = parse_jaas(settings["sasl.jaas.config"], setting="sasl.jaas.config")
    assert entry.option("password") == 'a"b\\c'


def test_without_security_only_this_machine_can_connect() -> None:
    config = broker_config(embedded_properties("data", 9092))
    assert {endpoint.host for endpoint in config.listeners} == {"localhost"}
    assert config.lograft_http_listeners == ("http://localhost:9094",)
