import pytest

from lograft.cli.node_runner import embedded_properties
from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.settings.broker import BrokerConfig, broker_config, find_key, with_dynamic
from lograft.model.settings.dynamic import validate_dynamic
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.model.settings.keys import NoEffect, Used
from lograft.model.settings.resolution import describe_broker
from lograft.model.settings.sasl import enabled_mechanisms, jaas_entry, max_reauth_ms

PREFIX = "listener.name.outside."
PLAIN = f"{PREFIX}plain.sasl.jaas.config"
SCRAM = f"{PREFIX}scram-sha-256.sasl.jaas.config"
CANARY = "c4n4ry-secret"
USERS = f'{PLAIN_MODULE} required user_alice="{CANARY}";'


def config(**changes: str | None) -> BrokerConfig:
    values = embedded_properties("data", 9092) | {
        "listeners": "PLAINTEXT://localhost:9092,OUTSIDE://localhost:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ",OUTSIDE:SASL_PLAINTEXT",
        f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        PLAIN: USERS,
    }
    changed = {name.replace("__", "-").replace("_", "."): text for name, text in changes.items()}
    values |= {name: text for name, text in changed.items() if text is not None}
    return broker_config(
        {name: text for name, text in values.items() if changed.get(name, "") is not None}
    )


def test_settings_of_a_listener() -> None:
    node = config(
        sasl_enabled_mechanisms="GSSAPI",
        connections_max_reauth_ms="1000",
        listener_name_outside_plain_connections_max_reauth_ms="2000",
    )
    assert enabled_mechanisms(node, "OUTSIDE") == ("PLAIN", "SCRAM-SHA-256")
    entry = jaas_entry(node, "OUTSIDE", "PLAIN")
    assert entry is not None
    assert list(entry.users) == ["alice"]
    assert jaas_entry(node, "OUTSIDE", "SCRAM-SHA-256") is None
    assert max_reauth_ms(node, "OUTSIDE", "PLAIN") == 2000
    assert max_reauth_ms(node, "OUTSIDE", "SCRAM-SHA-256") == 1000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"listener_name_outside_sasl_enabled_mechanisms": None},
            r"OUTSIDE enables GSSAPI, but .* another mechanism in sasl\.enabled\.mechanisms",
        ),
        (
            {"listener_name_outside_sasl_enabled_mechanisms": "PLAIN,X"},
            "mechanisms contains X: set it",
        ),
        ({"listener_name_outside_sasl_enabled_mechanisms": ""}, "contains no mechanism: set it to"),
        (
            {"listener_name_outside_plain_sasl_jaas_config": None},
            "no users for PLAIN: set listener",
        ),
        (
            {"listener_name_outside_plain_sasl_jaas_config": f"{SCRAM_MODULE} required;"},
            "must name the login module of PLAIN",
        ),
        (
            {"listener_name_outside_plain_sasl_jaas_config": f"{PLAIN_MODULE} a='{CANARY}';"},
            "not followed by required",
        ),
        ({"sasl_server_callback_handler_class": "org.example.Handler"}, None),
    ],
)
def test_a_listener_that_could_not_authenticate_is_rejected(
    changes: dict[str, str | None], message: str | None
) -> None:
    if message is None:
        config(**changes)
        return
    with pytest.raises(InvalidConfig, match=message) as raised:
        config(**changes)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "is_used"),
    [
        (PLAIN, True),
        (SCRAM, True),
        (f"{PREFIX}plain.connections.max.reauth.ms", True),
        (f"{PREFIX}connections.max.reauth.ms", True),
        (f"{PREFIX}sasl.enabled.mechanisms", True),
        ("connections.max.reauth.ms", True),
        # Without a mechanism, Kafka ignores it too.
        ("sasl.jaas.config", False),
        (f"{PREFIX}sasl.jaas.config", False),
        (f"{PREFIX}PLAIN.sasl.jaas.config", False),
        ("listener.name.OUTSIDE.plain.sasl.jaas.config", False),
        (f"{PREFIX}gssapi.sasl.jaas.config", True),
        (f"{PREFIX}plain.sasl.enabled.mechanisms", False),
    ],
)
def test_prefixes_without_effect_are_known(name: str, is_used: bool) -> None:
    key = find_key(name)
    assert key is not None
    assert isinstance(key.effect, Used if is_used else NoEffect)


def test_users_change_dynamically() -> None:
    changed = with_dynamic(config(), default={}, broker={PLAIN: f"{PLAIN_MODULE} required;"})
    entry = jaas_entry(changed, "OUTSIDE", "PLAIN")
    assert entry is not None
    assert entry.users == {}


def test_an_invalid_dynamic_value_is_rejected_without_showing_it() -> None:
    with pytest.raises(InvalidInput, match="does not end with a semicolon") as raised:
        validate_dynamic({PLAIN: USERS[:-1]}, changed_names=[PLAIN], whole_cluster=False)
    assert CANARY not in str(raised.value)


def test_passwords_are_not_described() -> None:
    described = {entry.name: entry for entry in describe_broker(config())}
    assert described[PLAIN].is_sensitive
    assert CANARY not in repr(described)


# ── between nodes ────────────────────────────────────────────────────────────────────────────────

BETWEEN = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "log.dirs": "data",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INSIDE",
    "listeners": "INSIDE://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.inside.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required"
    f' username="node" password="{CANARY}";',
    "listener.name.inside.plain.sasl.jaas.config": USERS,
    "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN_MODULE} required"
    f' username="node" password="{CANARY}" user_node="{CANARY}";',
}
SEVERAL = {"controller.quorum.bootstrap.servers": "a:9093,b:9093,c:9093"}
SCRAM_TO_CONTROLLERS = {
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required"
    f' username="node" password="{CANARY}";',
}
BROKER_ONLY = {
    "process.roles": "broker",
    "listeners": "INSIDE://localhost:9092",
    **SEVERAL,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        SEVERAL,
        # Nobody else has to log in to a single controller before it can elect itself.
        SCRAM_TO_CONTROLLERS,
        SCRAM_TO_CONTROLLERS | {"controller.quorum.voters": "1@localhost:9093"},
        SCRAM_TO_CONTROLLERS | BROKER_ONLY,
        # Not used.
        {
            "process.roles": "controller",
            "listeners": "CONTROLLER://localhost:9093",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        },
    ],
)
def test_logins_between_nodes_that_work(changes: dict[str, str]) -> None:
    broker_config(BETWEEN | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "DIGEST-MD5"},
            "sasl.mechanism.inter.broker.protocol is DIGEST-MD5: set it to one of PLAIN, SCRAM-SHA",
        ),
        (
            BROKER_ONLY | {"sasl.mechanism.controller.protocol": "GSSAPI"},
            "GSSAPI requires sasl.kerberos.service.name",
        ),
        (
            {"listener.name.inside.sasl.enabled.mechanisms": "PLAIN"},
            "SCRAM-SHA-256, which sasl.enabled.mechanisms of listener INSIDE does not contain",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
            "no user to log in to listener INSIDE of other nodes: set listener.name.inside.plain",
        ),
        (
            BROKER_ONLY | {"sasl.mechanism.controller.protocol": "SCRAM-SHA-256"},
            "no user to log in to listener CONTROLLER of other nodes",
        ),
        (
            SCRAM_TO_CONTROLLERS | SEVERAL,
            "SCRAM-SHA-512, but this node is one of several controllers: .* Set it to PLAIN",
        ),
        (
            SCRAM_TO_CONTROLLERS | {"controller.quorum.voters": "1@localhost:9093,2@b:9093"},
            "one of several controllers",
        ),
        (
            # Joins the quorum of another controller.
            SCRAM_TO_CONTROLLERS | {"controller.quorum.bootstrap.servers": "b:9193"},
            "one of several controllers",
        ),
    ],
)
def test_logins_between_nodes_that_could_not_work_are_rejected(
    changes: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message) as raised:
        broker_config(BETWEEN | changes)
    assert CANARY not in str(raised.value)
