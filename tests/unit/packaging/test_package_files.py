"""The files of packaging/ agree with each other and with the command line."""

import re
from typing import Final

from lograft.model.properties import parse_properties
from lograft.model.settings.broker import BROKER_CONFIGS, broker_config, unknown_settings
from tests.support.repository import ROOT

PACKAGING: Final = ROOT / "packaging"


def test_the_unit_starts_the_node_of_the_package() -> None:
    unit = (PACKAGING / "systemd" / "lograft.service").read_text()
    [command] = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    assert command == "/usr/bin/lograft server /etc/lograft/server.properties"
    assert "/etc/lograft/server.properties" in (ROOT / "tools" / "build_deb.py").read_text()
    assert "Restart=on-failure" in unit


def test_the_settings_of_the_package_are_known() -> None:
    config = broker_config(parse_properties((PACKAGING / "deb/server.properties").read_text()))
    assert unknown_settings(config) == ()


def test_the_containerfile_copies_files_that_exist() -> None:
    steps = (PACKAGING / "container" / "Containerfile").read_text()
    for sources in re.findall(r"^COPY (?:--\S+ )*(.*) \S+$", steps, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    assert "\nUSER 1000:1000\n" in steps


def test_the_build_context_contains_only_what_is_copied() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert "*" in lines
    assert all((ROOT / name).exists() for name in kept)


def test_compose_files_set_settings_that_exist() -> None:
    names = set()
    for file in sorted((PACKAGING / "compose").glob("*.yaml")):
        names |= set(re.findall(r"^\s+KAFKA_([A-Z_]+):", file.read_text(), re.MULTILINE))
    assert {name.lower().replace("_", ".") for name in names} <= BROKER_CONFIGS.keys()
    assert len(names) > 8
