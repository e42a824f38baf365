import pytest

from lograft.cli.node_runner import embedded_properties
from lograft.http.endpoints import http_endpoints, unencrypted_endpoints
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address
from lograft.model.settings.broker import broker_config, unknown_settings


def endpoints_of(text: str, **settings: str) -> list[tuple[str, int, bool]]:
    properties = embedded_properties("data", 9092) | {"lograft.http.listeners": text}
    config = broker_config(properties | settings)
    return [(*address_of(each.address), each.uses_tls) for each in http_endpoints(config)]


def address_of(address: Address) -> tuple[str, int]:
    return address.host, address.port


def test_there_is_no_http_listener_by_default() -> None:
    assert endpoints_of("") == []


def test_urls_become_addresses() -> None:
    assert endpoints_of("http://localhost:8082, https://[::1]:8083/,http://127.9.9.9:0") == [
        ("localhost", 8082, False),
        ("::1", 8083, True),
        ("127.9.9.9", 0, False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "localhost:8082",
        "ftp://localhost:8082",
        "http://localhost",
        "http://:8082",
        "http://localhost:99999",
        "http://localhost:x",
        "http://localhost:8082/metrics",
        "http://user@localhost:8082",
        "http://[::1:8082",
    ],
)
def test_other_urls_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfig, match="takes URLs such as http://localhost:8082"):
        endpoints_of(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "example.org", "[::]"])
def test_addresses_outside_this_machine_are_rejected(host: str) -> None:
    match = "without authentication: set lograft.http.authentication.enable=true, or use a loopback"
    with pytest.raises(InvalidConfig, match=match):
        endpoints_of(f"http://{host}:8082")


def test_with_authentication_other_machines_may_connect() -> None:
    settings = {
        "lograft.http.authentication.enable": "true",
        "listener.name.http.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    texts = "http://0.0.0.0:8082,https://node1:8083,http://localhost:8084"
    assert [host for host, *_ in endpoints_of(texts, **settings)] == [
        "0.0.0.0",
        "node1",
        "localhost",
    ]
    properties = embedded_properties("data", 9092) | {"lograft.http.listeners": texts} | settings
    unencrypted = unencrypted_endpoints(http_endpoints(broker_config(properties)))
    assert [endpoint.address.port for endpoint in unencrypted] == [8082]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "GSSAPI cannot be used over HTTP: set listener.name.http.sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "listener HTTP has no users for PLAIN"),
        ({"sasl.enabled.mechanisms": ""}, "no mechanism"),
    ],
)
def test_authentication_needs_usable_mechanisms(settings: dict[str, str], match: str) -> None:
    settings = settings | {"lograft.http.authentication.enable": "true"}
    with pytest.raises(InvalidConfig, match=match):
        endpoints_of("http://localhost:8082", **settings)


def test_an_address_is_used_once() -> None:
    with pytest.raises(InvalidConfig, match="the same address twice"):
        endpoints_of("http://localhost:8082,https://localhost:8082")
    assert len(endpoints_of("http://localhost:0,http://localhost:0")) == 2


def test_tls_settings_of_the_http_listener_are_known() -> None:
    name = "listener.name.http.ssl.keystore.location"
    properties = embedded_properties("data", 9092) | {name: "x.pem", "lograft.http.listeners": ""}
    assert unknown_settings(broker_config(properties)) == (name,)
    properties["lograft.http.listeners"] = "https://localhost:8082"
    assert unknown_settings(broker_config(properties)) == ()


def test_the_name_of_the_tls_settings_is_reserved() -> None:
    settings = {"listeners": "HTTP://localhost:9092,CONTROLLER://localhost:9093"}
    settings["listener.security.protocol.map"] = "HTTP:PLAINTEXT,CONTROLLER:PLAINTEXT"
    settings["inter.broker.listener.name"] = "HTTP"
    assert endpoints_of("http://localhost:8082", **settings)
    with pytest.raises(InvalidConfig, match="this name is reserved"):
        endpoints_of("https://localhost:8082", **settings)
