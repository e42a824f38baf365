"""Dynamic broker settings: the same changes get the same answers from Lograft and from Apache
Kafka, and have the same effect.

Each change is sent in both requests (IncrementalAlterConfigs and AlterConfigs), for one broker and
for all, validated only and for real. A change that was accepted is described and then undone.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pytest

from lograft.client.blocking import Admin
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker_table import DYNAMIC_BROKER_CONFIGS
from lograft.wire.messages import alter_configs as replacing
from lograft.wire.messages import incremental_alter_configs as incremental
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import (
    HOST,
    Server,
    compares_two,
    free_port,
    full_run_only,
    kinds_under_test,
)
from tests.support.waiting import wait_until

BROKER: Final = 4
SET, DELETE = 0, 1
EFFECT_SECONDS_MAX: Final = 20.0
NO_ANSWER_SECONDS: Final = 0.5
MAP: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
#: {port}, {controller} and {extra} are ports, {data} is the log dir.
LISTENERS: Final = f"PLAINTEXT://{HOST}:{{port}},CONTROLLER://{HOST}:{{controller}}"
EXTRA: Final = f"{LISTENERS},EXTRA://{HOST}:{{extra}}"
PLAIN_USERS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
)

pytestmark = pytest.mark.interop

CHANGES: Final[tuple[dict[str, str], ...]] = (
    # Limits of connections.
    {"max.connections": "0"},
    {"max.connections": "100"},
    {"max.connections": "-1"},
    {"listener.name.plaintext.max.connections": "0"},
    {"listener.name.plaintext.max.connections": "50"},
    {"listener.name.nosuch.max.connections": "50"},
    {"listener.name.PLAINTEXT.max.connections": "50"},
    {"listener.name.plaintext.max.connections.per.ip": "50"},
    {"listener.name.plaintext.log.retention.ms": "5000"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "100"},
    {"max.connections.per.ip": "x"},
    {"max.connections.per.ip.overrides": "127.0.0.1:100"},
    {"max.connections.per.ip.overrides": "rubbish"},
    {"max.connections.per.ip.overrides": "127.0.0.1:x"},
    {"max.connections.per.ip.overrides": "127.0.0.1:\N{SUPERSCRIPT TWO}"},
    {"max.connections.per.ip.overrides": "127.0.0.1:2147483648"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:100"},
    {"max.connection.creation.rate": "0"},
    {"max.connection.creation.rate": "100"},
    {"listener.name.plaintext.max.connection.creation.rate": "0"},
    {"listener.name.plaintext.max.connection.creation.rate": "100"},
    # Listeners.
    {"listeners": LISTENERS},
    {"listeners": EXTRA},
    {"listeners": EXTRA, "listener.security.protocol.map": f"{MAP},EXTRA:PLAINTEXT"},
    {
        "listeners": EXTRA.replace("{extra}", "{port}"),
        "listener.security.protocol.map": f"{MAP},EXTRA:PLAINTEXT",
    },
    {"listeners": LISTENERS.replace("{port}", "{extra}")},
    {"listeners": f"CONTROLLER://{HOST}:{{controller}}"},
    {"listeners": f"PLAINTEXT://{HOST}:{{port}}"},
    {"listeners": ""},
    {"listeners": "rubbish"},
    {"listener.security.protocol.map": f"{MAP},EXTRA:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:NOSUCH,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "rubbish"},
    # TLS and SASL.
    {"ssl.keystore.location": "/nosuch"},
    {"ssl.keystore.type": "PEM"},
    {"ssl.protocol": "TLSv1.2"},
    {"listener.name.plaintext.ssl.keystore.location": "/nosuch"},
    {"listener.name.nosuch.ssl.keystore.location": "/nosuch"},
    {"listener.name.plaintext.ssl.client.auth": "required"},
    {"listener.name.plaintext.ssl.client.auth": "rubbish"},
    {"sasl.enabled.mechanisms": "PLAIN"},
    {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"},
    # Lograft rejects a malformed one, which Kafka stores.
    {"listener.name.plaintext.plain.sasl.jaas.config": PLAIN_USERS},
    # Classes.
    {"metric.reporters": "no.such.Reporter"},
    {"metric.reporters": ""},
    {"metric.reporters": "java.lang.String"},
    {"principal.builder.class": "no.such.Builder"},
    {"listener.name.plaintext.principal.builder.class": "no.such.Builder"},
    {"ssl.engine.factory.class": "no.such.Factory"},
    {"listener.name.plaintext.ssl.engine.factory.class": "no.such.Factory"},
    # The cleaner, threads, and values that must agree with others.
    {"log.cleaner.dedupe.buffer.size": "1000"},
    {"log.cleaner.dedupe.buffer.size": "2000000"},
    {"log.cleaner.threads": "0"},
    {"log.cleaner.threads": "2"},
    {"log.cleaner.threads": "3"},
    {"log.cleaner.io.buffer.load.factor": "7"},
    {"log.cleaner.io.max.bytes.per.second": "1_000"},
    {"log.cleaner.io.max.bytes.per.second": "inf"},
    {"log.cleaner.io.max.bytes.per.second": "1.5e7"},
    {"log.cleaner.dedupe.buffer.size": "1000", "listener.security.protocol.map": "rubbish"},
    {"num.io.threads": "16"},
    {"num.io.threads": "17"},
    {"num.io.threads": "3"},
    {"num.io.threads": "0"},
    {"num.network.threads": "7"},
    {"listener.name.plaintext.num.network.threads": "4"},
    {"listener.name.plaintext.num.network.threads": "7"},
    {"num.replica.fetchers": "3"},
    {"num.recovery.threads.per.data.dir": "5"},
    {"background.threads": "4"},
    {"remote.log.reader.threads": "100"},
    {"cordoned.log.dirs": "/nosuch"},
    {"cordoned.log.dirs": "{data}"},
    {"cordoned.log.dirs": "*"},
    {"cordoned.log.dirs": "{data},*"},
    {"group.consumer.assignment.interval.ms": "100000000"},
    {"log.local.retention.ms": "-1"},
    {"log.local.retention.ms": "99999999999"},
    # Values by themselves.
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-2"},
    {"log.retention.ms": "1000"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.segment.bytes": "10"},
    {"log.cleanup.policy": "nosuch"},
    {"log.cleanup.policy": ""},
    {"message.max.bytes": " 100 "},
    {"message.max.bytes": "\N{NO-BREAK SPACE}100"},
    {"unclean.leader.election.enable": "maybe"},
    {"follower.replication.throttled.rate": "-1"},
    {"follower.replication.throttled.rate": "5"},
    # Names that cannot be dynamic, and names that nobody knows.
    {"num.partitions": "3"},
    {"node.id": "1"},
    {"queued.max.request.bytes": "1"},
    {"unknown.setting": "1"},
    {"listener.name.plaintext.unknown.setting": "1"},
)


class Answer(NamedTuple):
    code: str
    #: What DescribeConfigs shows while the change is in force; None where it was rejected.
    described: Any = None


def texts(server: Server, change: Mapping[str, str], extra: int) -> dict[str, str]:
    return {
        name: text.replace("{port}", str(server.port))
        .replace("{controller}", str(server.controller_port))
        .replace("{extra}", str(extra))
        .replace("{data}", str(server.data))
        for name, text in change.items()
    }


def alter(
    server: Server,
    broker: str,
    values: Mapping[str, str | None],
    *,
    replaces: bool = False,
    validate_only: bool = False,
) -> str:
    """The name of the error, or "NONE". A value of None deletes."""
    with connect(server) as connection:
        if replaces:
            configs = [replacing.AlterableConfig(name=name, value=values[name]) for name in values]
            # Eligible leader replicas do not allow to remove it for all brokers.
            if not broker:
                minimum = replacing.AlterableConfig(name="min.insync.replicas", value="1")
                configs.append(minimum)
            request = replacing.AlterConfigsRequest(
                resources=[
                    replacing.AlterConfigsResource(
                        resource_type=BROKER, resource_name=broker, configs=configs
                    )
                ],
                validate_only=validate_only,
            )
            replaced = ask(connection, request, 2)
            assert isinstance(replaced, replacing.AlterConfigsResponse)
            return ErrorCode(replaced.responses[0].error_code).name
        return alter_alone(connection, broker, values, validate_only=validate_only)


def alter_alone(
    connection: socket.socket,
    broker: str,
    values: Mapping[str, str | None],
    *,
    validate_only: bool,
) -> str:
    """Changes these settings, and no others."""
    changes = [
        incremental.AlterableConfig(
            name=name, config_operation=DELETE if value is None else SET, value=value
        )
        for name, value in values.items()
    ]
    resource = incremental.AlterConfigsResource(
        resource_type=BROKER, resource_name=broker, configs=changes
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    altered = ask(connection, request, 1)
    assert isinstance(altered, incremental.IncrementalAlterConfigsResponse)
    return ErrorCode(altered.responses[0].error_code).name


def undo(server: Server, broker: str, change: Mapping[str, str]) -> None:
    try:
        code = alter(server, broker, dict.fromkeys(change))
    except ConnectionError:
        # Kafka closes the connections of the network threads that it removes.
        code = alter(server, broker, dict.fromkeys(change))
    assert code == "NONE"
    wait_until(
        lambda: all(
            source not in (2, 3) for _, _, source, *_ in described(server, "1", list(change))
        ),
        "the settings are undone",
    )


def described(server: Server, broker: str, names: list[str]) -> list[Any]:
    with connect(server) as connection:
        answer = ask(
            connection,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=BROKER, resource_name=broker, configuration_keys=names
                    )
                ],
                include_synonyms=True,
            ),
            4,
        )
    assert isinstance(answer, DescribeConfigsResponse)
    (result,) = answer.results
    assert result.error_code == 0
    shown = [
        (
            entry.name,
            entry.value,
            entry.config_source,
            entry.is_sensitive,
            entry.read_only,
            entry.config_type,
            [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        )
        for entry in result.configs
    ]
    return sorted(shown)


def wait_until_in_force(server: Server, values: Mapping[str, str], *, source: int) -> None:
    wait_until(
        lambda: (
            [entry[2] for entry in described(server, "1", list(values))] == [source] * len(values)
        ),
        f"{values} is in force",
    )


def answers(server: Server, change: Mapping[str, str], extra: int) -> dict[str, Answer]:
    values = texts(server, change, extra)
    found = {}
    for broker in ("1", ""):
        for replaces in (False, True):
            case = f"{'broker' if broker else 'cluster'} {'all' if replaces else 'some'}"
            code = alter(server, broker, values, replaces=replaces, validate_only=True)
            found[f"{case} validated"] = Answer(code)
            code = alter(server, broker, values, replaces=replaces)
            shown = None
            if code == "NONE":
                wait_until_in_force(server, values, source=2 if broker else 3)
                shown = [described(server, each, list(values)) for each in {broker, "1"}]
                undo(server, broker, values)
            found[case] = Answer(code, shown)
    return found


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """One of each kind, of this module alone: limits of connections would harm other tests."""
    with ExitStack() as stack:
        started: dict[str, Server] = {}
        for kind in kinds_under_test():
            started[kind] = Server.of(kind, tmp_path_factory.mktemp(kind))
            stack.enter_context(started[kind].started())
        yield started


@pytest.fixture(params=kinds_under_test())
def node(request: pytest.FixtureRequest, nodes: dict[str, Server]) -> Server:
    return nodes[request.param]


def neutral(server: Server, value: Any, extra: int) -> Any:
    """Without what two nodes cannot share."""
    text = repr(value).replace(str(server.folder), "{folder}")
    for port, name in (
        (server.port, "{port}"),
        (server.controller_port, "{controller}"),
        (extra, "{extra}"),
    ):
        text = text.replace(f":{port}", f":{name}")
    return text


def name_of(change: dict[str, str]) -> str:
    return ",".join(f"{name}={text}" for name, text in change.items())[:80]


@compares_two()
@pytest.mark.parametrize("change", CHANGES, ids=name_of)
def test_the_same_change_gets_the_same_answers(
    nodes: dict[str, Server], change: dict[str, str]
) -> None:
    extra = free_port()
    found = {
        kind: {
            case: neutral(node, answer, extra)
            for case, answer in answers(node, change, extra).items()
        }
        for kind, node in nodes.items()
    }
    assert found["lograft"] == found["kafka"]


# ── odd values ───────────────────────────────────────────────────────────────────────────────

ODD_VALUES: Final = (
    *("", " ", "0", "-0", "+5", "-1", "-2", "007", "1", "1,2", "1L", "1f", "1.5", "1e3", "1_000"),
    *("0x10", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("Infinity", "-Infinity", "true", "TRUE", "yes", "null", "none", "abc", "a,b", "a,,b", ","),
    *("*", "0:1", " 5 ", "\t7\n", "\N{NO-BREAK SPACE}7", "$ {a}", "${a"),
)
#: Settings of which Lograft rejects values that Kafka accepts, with the values; None: any value.
STRICTER: Final[dict[str, tuple[str, ...] | None]] = {
    "config.providers": None,
    "log.flush.interval.ms": ("-1", "-2"),
    "max.connections.per.ip.overrides": (",",),
    "principal.builder.class": None,
    "ssl.engine.factory.class": None,
    "ssl.provider": None,
}


def odd_cases() -> Iterator[tuple[str, str]]:
    for name in sorted(DYNAMIC_BROKER_CONFIGS):
        # Lograft's own settings are unknown to Kafka.
        if name.startswith(("auto.create.partitions.", "lograft.")):
            continue
        stricter = STRICTER.get(name, ())
        for value in ODD_VALUES:
            if stricter is not None and value not in stricter:
                yield name, value


def odd_answers(server: Server, broker: str) -> list[str]:
    with connect(server) as connection:
        return [
            alter_alone(connection, broker, {name: value}, validate_only=True)
            for name, value in odd_cases()
        ]


@full_run_only()
@compares_two()
@pytest.mark.parametrize("broker", ["1", ""], ids=["broker", "cluster"])
def test_odd_values_get_the_same_answers(nodes: dict[str, Server], broker: str) -> None:
    found = {kind: odd_answers(node, broker) for kind, node in nodes.items()}
    different = [
        f"{name}={value!r}: Kafka {kafkas}, Lograft {ours}"
        for (name, value), kafkas, ours in zip(
            odd_cases(), found["kafka"], found["lograft"], strict=True
        )
        if kafkas != ours
    ]
    assert not different, "\n".join(different)


# ── effects ──────────────────────────────────────────────────────────────────────────────────


def is_answered(connection: socket.socket, *, within: float = EFFECT_SECONDS_MAX) -> bool | None:
    """None: the server has closed the connection."""
    connection.settimeout(within)
    try:
        answer = ask(connection, MetadataRequest(topics=[]), 12)
    except TimeoutError:
        return False
    except ConnectionError:
        return None
    assert isinstance(answer, MetadataResponse)
    return True


class Dynamic:
    """Settings of broker 1, undone at the end."""

    def __init__(self, server: Server, values: dict[str, str]) -> None:
        self.server, self.values = server, values

    def __enter__(self) -> None:
        assert alter(self.server, "1", dict(self.values)) == "NONE"
        wait_until_in_force(self.server, self.values, source=2)

    def __exit__(self, *_: object) -> None:
        undo(self.server, "1", self.values)


def close_all(connections: list[socket.socket]) -> None:
    for connection in connections:
        connection.close()
    connections.clear()


def wait_for_room(node: Server) -> None:
    """Until the server has noticed that connections are closed."""

    def is_served() -> bool:
        with connect(node) as connection:
            return is_answered(connection) is True

    wait_until(is_served, "a new connection is answered")


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"max.connections.per.ip": "6"}, 6),
        ({"max.connections.per.ip.overrides": "localhost:5"}, 5),
    ],
)
def test_the_limit_per_address_refuses_connections(
    node: Server, values: dict[str, str], limit: int
) -> None:
    held: list[socket.socket] = []

    def count_answered() -> int:
        close_all(held)
        held.extend(connect(node) for _ in range(2 * limit))
        return sum(is_answered(connection) is True for connection in held)

    with Dynamic(node, values):
        # The connections of the last attempt may still count.
        wait_until(lambda: count_answered() == limit, f"{limit} connections are answered")
        close_all(held)
        wait_for_room(node)
    wait_until(lambda: count_answered() == 2 * limit, "the limit is gone")
    close_all(held)


def test_a_listener_at_its_limit_lets_clients_wait(node: Server) -> None:
    with Dynamic(node, {"listener.name.plaintext.max.connections": "4"}):
        wait_for_room(node)
        held = [connect(node) for _ in range(4)]
        assert [is_answered(connection) for connection in held] == [True] * 4
        late = connect(node)
        assert is_answered(late, within=NO_ANSWER_SECONDS) is False
        held.pop().close()
        late.settimeout(EFFECT_SECONDS_MAX)
        assert late.recv(4)  # the answer to what was asked before
        close_all([*held, late])
        wait_for_room(node)


def test_a_rate_of_connections_delays_and_refuses_none(node: Server) -> None:
    name = "listener.name.plaintext.max.connection.creation.rate"
    with Dynamic(node, {name: "10"}):
        begin = time.monotonic()
        for _ in range(80):
            with connect(node) as connection:
                assert is_answered(connection) is True
        # Kafka averages over eleven seconds, Lograft over one: both allow a burst at first.
        assert time.monotonic() - begin > 1


def test_a_listener_opens_and_closes(node: Server) -> None:
    extra = free_port()

    def is_open() -> bool:
        try:
            socket.create_connection((HOST, extra), EFFECT_SECONDS_MAX).close()
        except ConnectionRefusedError:
            return False
        return True

    assert not is_open()
    with Dynamic(node, with_extra_listener(node, extra)):
        wait_until(is_open, "the listener is open")
        added = socket.create_connection((HOST, extra), EFFECT_SECONDS_MAX)
        answer = ask(added, MetadataRequest(topics=[]), 12)
        assert isinstance(answer, MetadataResponse)
        # What a broker advertises was registered when it started.
        assert (answer.brokers, answer.controller_id) == ([], 1)
        with connect(node) as connection:
            assert is_answered(connection) is True
    wait_until(lambda: not is_open(), "the listener is closed")
    assert is_answered(added) is None
    added.close()


def with_extra_listener(node: Server, port: int) -> dict[str, str]:
    values = {"listeners": EXTRA, "listener.security.protocol.map": f"{MAP},EXTRA:PLAINTEXT"}
    return texts(node, values, port)


def test_the_listener_between_brokers_is_protected(node: Server) -> None:
    extra = free_port()

    def client() -> socket.socket:
        return socket.create_connection((HOST, extra), EFFECT_SECONDS_MAX)

    limits = {"max.connections": "6"}
    with Dynamic(node, with_extra_listener(node, extra)), Dynamic(node, limits):
        wait_for_room(node)
        clients = [client() for _ in range(6)]
        assert [is_answered(connection) for connection in clients] == [True] * 6
        brokers = [connect(node) for _ in range(2)]
        assert [is_answered(connection) for connection in brokers] == [True] * 2
        wait_until(
            lambda: sum(is_answered(connection) is None for connection in clients) == 2,
            "two clients made room",
        )
        late = client()
        assert is_answered(late, within=NO_ANSWER_SECONDS) is False
        close_all([*clients, *brokers, late])


def test_dynamic_listeners_and_limits_survive_a_restart(node: Server) -> None:
    extra = free_port()
    values = with_extra_listener(node, extra) | {"listener.name.extra.max.connections": "1"}
    with Dynamic(node, values):
        node.stop()
        node.start()

        def is_served() -> bool:
            try:
                with socket.create_connection((HOST, extra), EFFECT_SECONDS_MAX) as connection:
                    return is_answered(connection) is True
            except ConnectionRefusedError:
                return False

        wait_until(is_served, "the listener is open again")
        first, second = [
            socket.create_connection((HOST, extra), EFFECT_SECONDS_MAX) for _ in range(2)
        ]
        assert is_answered(first) is True
        assert is_answered(second, within=NO_ANSWER_SECONDS) is False
        close_all([first, second])


def test_an_invalid_change_leaves_later_ones_in_force(node: Server) -> None:
    assert alter(node, "1", {"log.cleaner.dedupe.buffer.size": "1000"}) == "INVALID_REQUEST"
    with Dynamic(node, {"log.retention.ms": "123456789"}):
        ((_, value, *_),) = described(node, "1", ["log.retention.ms"])
        assert value == "123456789"


def test_a_broker_answers_for_itself_only(node: Server) -> None:
    assert alter(node, "77", {"log.retention.ms": "5"}) == "INVALID_REQUEST"


@compares_two()
def test_invalid_values_that_kafka_stored_are_skipped(
    new_server: Callable[..., Server], java_tools: JavaTools
) -> None:
    """Kafka's controllers accept any value for brokers. Before metadata.version 4.0, the features
    allow one minimum of replicas for each broker."""
    values = {
        "log.retention.ms": "123456789",
        "max.connections.per.ip": "rubbish",
        "min.insync.replicas": "-3",
        "unclean.leader.election.enable": "maybe",
    }
    first = new_server("kafka")
    first.format_arguments = ("--release-version", "3.9")
    with first.started():
        for name, value in values.items():
            java_tools.check(
                "ConfigCommand",
                *("--bootstrap-controller", first.controller, "--alter"),
                *("--entity-type", "brokers", "--entity-default"),
                *("--add-config", f"{name}={value}"),
            )
    second = new_server("lograft").using_data_of(first)
    with second.started(), Admin(bootstrap_servers=second.bootstrap) as admin:
        create_topic(second.bootstrap, "served")
        ((_, value, source, *_),) = described(second, "1", ["log.retention.ms"])
        assert (value, source) == ("123456789", 3)
        skipped = admin.describe_skipped_configs([1])[1]
        assert sorted(text.split()[0] for text in skipped) == sorted(values)[1:]
