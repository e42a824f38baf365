"""Every setting of Kafka's clients, by name, type and default, beside ours.

The facts are in tests/golden/clients (an interop test compares them with the jar).
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
from lograft.client.settings import Secret, dotted
from lograft.model.errors import InvalidConfig
from tools.generate_keywords import OUTPUT, generated

ROOT = Path(__file__).parents[3]
FACTS = ROOT / "tests" / "golden" / "clients" / "settings-4.3.1.tsv"
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
#: Names that Kafka does not have: what its JAAS text and callback classes say there.
OUR_OWN = {"oauth.token", "sasl.password", "sasl.username"}
#: Where a default differs, and why.
DIFFERENT = {
    "enable.idempotence": "on unless another setting that was given stands against it, as in Java",
    "enable.auto.commit": "on where there is a group, as in Java",
    "heartbeat.interval.ms": "unset, so that it can be seen whether KIP-848 is given it in vain",
    "session.timeout.ms": "unset, so that it can be seen whether KIP-848 is given it in vain",
    "partition.assignment.strategy": "names of strategies, not of classes",
    "key.serializer": "bytes and text need none",
    "value.serializer": "bytes and text need none",
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


class Fact(NamedTuple):
    client: str
    name: str
    kind: str
    default: str


def facts() -> list[Fact]:
    return [Fact(*line.split("\t")) for line in FACTS.read_text().splitlines()]


def defaults_of(settings: type[ClientSettings]) -> dict[str, Any]:
    return {dotted(one.name): one.default for one in fields(settings)}


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


@pytest.mark.parametrize("fact", facts(), ids=lambda fact: f"{fact.client}-{fact.name}")
def test_a_setting_of_kafka_is_ours_or_refused(fact: Fact) -> None:
    settings = OURS[fact.client]
    ours = defaults_of(settings)
    if fact.name not in ours:
        refused = settings.unsupported[fact.name]
        assert as_kafka_prints(refused.default) == fact.default
        assert settings.read({"bootstrap.servers": "h:1", fact.name: refused.default})
        with pytest.raises(InvalidConfig, match=f"{re.escape(fact.name)} cannot be set: .+"):
            settings.read({"bootstrap.servers": "h:1", fact.name: "something else"})
        return
    if fact.name in DIFFERENT:
        assert as_kafka_prints(ours[fact.name]) != fact.default, "not different any more"
    else:
        assert as_kafka_prints(ours[fact.name]) == fact.default
    wanted = KINDS.get(fact.kind)
    if wanted is not None:
        kind = typing.get_type_hints(settings)[fact.name.replace(".", "_")]
        kinds = set(typing.get_args(kind)) if isinstance(kind, types.UnionType) else {kind}
        assert kinds - {types.NoneType} == set(wanted)


@pytest.mark.parametrize("client", OURS)
def test_what_kafka_does_not_have_is_known(client: str) -> None:
    theirs = {fact.name for fact in facts() if fact.client == client}
    assert defaults_of(OURS[client]).keys() - theirs == OUR_OWN
    assert OURS[client].unsupported.keys() <= theirs


@pytest.mark.parametrize("client", OURS)
def test_no_setting_is_taken_and_never_looked_at(client: str) -> None:
    text = "\n".join(path.read_text() for path in CLIENT_SOURCES)
    unread = [one.name for one in fields(OURS[client]) if not re.search(rf"\.{one.name}\b", text)]
    assert unread == []


def test_the_typed_keywords_are_current() -> None:
    assert OUTPUT.read_text() == generated(), "run python -m tools.generate_keywords"
