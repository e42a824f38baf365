"""Compares the settings of Lograft's clients with Kafka's: names, types and defaults.

Kafka's are in tests/golden/clients (an interop test compares them with the jar).
"""

import re
import types
import typing
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lograft.client.administering.settings import AdminSettings
from lograft.client.client_settings import ClientSettings
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.producing.settings import ProducerSettings
from lograft.client.settings import Secret, to_dotted
from lograft.model.errors import InvalidConfig
from tools.generate_keywords import OUTPUT, generate

ROOT = Path(__file__).parents[3]
KAFKA_SETTINGS = ROOT / "tests" / "golden" / "clients" / "settings-4.3.1.tsv"
CLIENT_SOURCES = [
    path
    for path in (ROOT / "src" / "lograft" / "client").rglob("*.py")
    if path.name != "keywords.py"
]
OURS: dict[str, type[ClientSettings]] = {
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "admin": AdminSettings,
}
#: Settings that Kafka does not have: its JAAS text and callback classes contain them.
OUR_OWN = {"oauth.token", "sasl.password", "sasl.username"}
#: Settings with a different default, and the reason.
DIFFERENT = {
    "enable.idempotence": "enabled unless another setting forbids it, as in Java",
    "enable.auto.commit": "enabled if group.id is set, as in Java",
    "heartbeat.interval.ms": "unset, to detect that it is set without effect with KIP-848",
    "session.timeout.ms": "unset, to detect that it is set without effect with KIP-848",
    "partition.assignment.strategy": "names of strategies, not of classes",
    "metric.reporters": "functions, not classes; JMX belongs to Java",
    "key.serializer": "bytes and str need none",
    "value.serializer": "bytes and str need none",
    "key.deserializer": "bytes need none",
    "value.deserializer": "bytes need none",
    "ssl.keystore.type": "PEM text needs no type; the content of a file decides how it is read",
    "ssl.truststore.type": "PEM text needs no type; the content of a file decides how it is read",
}
KINDS: dict[str, tuple[Any, ...]] = {
    "INT": (int,),
    "LONG": (int,),
    "SHORT": (int,),
    "DOUBLE": (float,),
    "BOOLEAN": (bool,),
    "STRING": (str,),
    "PASSWORD": (Secret,),
}


class KafkaSetting(NamedTuple):
    client: str
    name: str
    kind: str
    default: str


def kafka_settings() -> list[KafkaSetting]:
    return [KafkaSetting(*line.split("\t")) for line in KAFKA_SETTINGS.read_text().splitlines()]


def defaults_of(settings: type[ClientSettings]) -> dict[str, Any]:
    return {to_dotted(field.name): field.default for field in fields(settings)}


def as_kafka_prints(value: Any) -> str:
    if value is MISSING:
        return "REQUIRED"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value)


@pytest.mark.parametrize(
    "expected",
    kafka_settings(),
    ids=lambda setting: f"{setting.client}-{setting.name}",
)
def test_every_kafka_setting_is_supported_or_rejected(expected: KafkaSetting) -> None:
    settings = OURS[expected.client]
    ours = defaults_of(settings)
    if expected.name not in ours:
        unsupported = settings.unsupported[expected.name]
        assert as_kafka_prints(unsupported.default) == expected.default
        assert settings.read({"bootstrap.servers": "h:1", expected.name: unsupported.default})
        with pytest.raises(InvalidConfig, match=f"{re.escape(expected.name)} cannot be set: .+"):
            settings.read({"bootstrap.servers": "h:1", expected.name: "something else"})
        return
    if expected.name in DIFFERENT:
        assert as_kafka_prints(ours[expected.name]) != expected.default, (
            "no longer different: remove it from DIFFERENT"
        )
    else:
        assert as_kafka_prints(ours[expected.name]) == expected.default
    expected_kinds = KINDS.get(expected.kind)
    if expected_kinds is not None:
        kind = typing.get_type_hints(settings)[expected.name.replace(".", "_")]
        kinds = set(typing.get_args(kind)) if isinstance(kind, types.UnionType) else {kind}
        assert kinds - {types.NoneType} == set(expected_kinds)


@pytest.mark.parametrize("client", OURS)
def test_additional_settings_are_known(client: str) -> None:
    theirs = {setting.name for setting in kafka_settings() if setting.client == client}
    assert defaults_of(OURS[client]).keys() - theirs == OUR_OWN
    assert OURS[client].unsupported.keys() <= theirs


@pytest.mark.parametrize("client", OURS)
def test_every_setting_is_read(client: str) -> None:
    text = "\n".join(path.read_text() for path in CLIENT_SOURCES)
    unread = [
        field.name for field in fields(OURS[client]) if not re.search(rf"\.{field.name}\b", text)
    ]
    assert unread == []


def test_typed_keywords_are_up_to_date() -> None:
    assert OUTPUT.read_text() == generate(), "run python -m tools.generate_keywords"
