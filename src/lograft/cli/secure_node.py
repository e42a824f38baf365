"""`lograft start --secure`: a node that other machines may reach.

The data directory contains the log directory, the certificates, the password of the user admin, and
files with which clients connect:

    log/                    the log directory
    ca.pem, ca.key          the certificate authority; clients need ca.pem
    node.pem                the node's private key and certificate
    node.json               the node's host name and its own password
    admin.password          the password of admin
    client.properties       for `lograft`, its client and Kafka's tools
    librdkafka.properties   for librdkafka

Only their owner can read them, except ca.pem. Files that exist are kept, so that a start that was
interrupted can be repeated; those for clients are written at every start.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lograft.cli.host_names import LOCAL_HOSTS, check_host, own_host, own_hosts
from lograft.cli.node_certificates import (
    AUTHORITY,
    NODE,
    SECRET_MODE,
    NodeCertificates,
    write_file,
)
from lograft.cli.node_runner import (
    CONTROLLER_PORT_STEP,
    HTTP_PORT_STEP,
    Output,
    embedded_properties,
    run_node,
)
from lograft.cli.secure_folder import CLIENT_FILE, LOG_FOLDER, STATE_FILE, is_secure
from lograft.model.errors import InvalidInput
from lograft.model.hosts import is_loopback
from lograft.model.seams import Address
from lograft.model.settings.authorizer import STANDARD_AUTHORIZER
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.node import Node
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.security.scram_credentials import ScramCredential, parse_credential
from lograft.storage.log_dirs import META_PROPERTIES

ADMIN: Final = "admin"
NODE_USER: Final = "node"
MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 8192
#: The listener of clients.
LISTENER: Final = "SASL_SSL"
CONTROLLER: Final = "CONTROLLER"
PASSWORD_FILE: Final = "admin.password"
LIBRDKAFKA_FILE: Final = "librdkafka.properties"
_PASSWORD_BYTES: Final = 24
_FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True)
class NodeState:
    """The content of node.json."""

    #: None: the name of the machine at each start.
    host: str | None
    password: str

    def __repr__(self) -> str:
        return f"NodeState(host={self.host!r})"


def start_secure(data: str, port: int, host: str | None, log_format: str = "text") -> None:
    """Runs the node until it is stopped; creates its files first if necessary."""
    folder = Path(data).absolute()
    _check_folder(folder)
    is_new = not is_secure(folder)
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    state = _read_state(folder, None if host is None else check_host(host))
    advertised = state.host or own_host()
    certificates = NodeCertificates(folder, _certificate_hosts(state.host), SystemClock())
    certificates.renew()
    config = broker_config(
        secure_properties(folder, port, advertised, state.password, log_format=log_format)
    )
    output = Output(config)
    with output.reporting_errors():
        if is_new:
            password = _read_password(folder) or _create_password(folder)
            _format(config, {ADMIN: password, NODE_USER: state.password})
            output.announce(f"Formatted {data} for a secure node.")

    def announce(node: Node) -> None:
        node.follow_certificates(certificates.renew)
        address = Address(advertised, node.addresses[LISTENER].port)
        _write_client_files(folder, address)
        for url in node.http_urls:
            output.announce(f"Metrics (user {ADMIN}) and health: {url}/metrics, {url}/health/ready")
        for line in connection_lines(folder, address):
            output.announce(line)
        output.announce(f"Lograft is listening on {address} (Ctrl-C stops it)")

    run_node(config, output, announce)


def secure_properties(
    folder: Path, port: int, host: str, password: str, *, log_format: str = "text"
) -> dict[str, str]:
    """Returns the settings of the node. It listens on all interfaces unless `host` is a loopback
    address; `password` is that of its own user."""
    log_folder = str(folder / LOG_FOLDER)
    bound = Address(host if is_loopback(host) else "", port)
    controller_port = port + CONTROLLER_PORT_STEP if port else 0
    http_port = port + HTTP_PORT_STEP if port else 0
    login = f'required username="{NODE_USER}" password="{password}"'
    properties = embedded_properties(log_folder, port, log_format=log_format)
    return properties | {
        "listeners": f"{LISTENER}://{bound},{CONTROLLER}://localhost:{controller_port}",
        "advertised.listeners": f"{LISTENER}://{Address(host, port)}",
        "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,{CONTROLLER}:SASL_SSL",
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config": (
            f"{SCRAM_MODULE} {login};"
        ),
        # Controllers authenticate to each other before they can read users from the metadata log.
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{CONTROLLER.lower()}.sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
        f"listener.name.{CONTROLLER.lower()}.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} {login} user_{NODE_USER}="{password}";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / NODE),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / AUTHORITY),
        "lograft.http.listeners": f"https://localhost:{http_port}",
        "lograft.http.authentication.enable": "true",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{NODE_USER}",
    }


def connection_lines(folder: Path, address: Address) -> Iterator[str]:
    """Yields how to connect as admin; never the password."""
    properties = folder / CLIENT_FILE
    yield f"Certificate authority that clients must trust: {folder / AUTHORITY}"
    if not (folder / PASSWORD_FILE).exists():
        yield f"{folder / PASSWORD_FILE} is missing: the files for clients are not updated"
        return
    yield f"Password of the user {ADMIN}: {folder / PASSWORD_FILE}"
    yield f"Kafka's tools: --bootstrap-server {address} --command-config {properties}"
    yield f"librdkafka: {folder / LIBRDKAFKA_FILE}"
    yield (f"lograft: lograft context add secure -b {address} --command-config {properties}")


def client_properties(address: Address, password: str, authority: Path) -> str:
    login = f'{SCRAM_MODULE} required username="{ADMIN}" password="{_quote(password)}";'
    return _properties({
        "bootstrap.servers": str(address),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    })  # fmt: skip


def librdkafka_properties(address: Address, password: str, authority: Path) -> str:
    # librdkafka's tools read values as they are, without escapes.
    settings = {
        "bootstrap.servers": str(address),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": ADMIN,
        "sasl.password": password,
        "ssl.ca.location": str(authority),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _check_folder(folder: Path) -> None:
    if "," in str(folder):
        raise InvalidInput("--data takes one directory, whose name cannot contain a comma")
    if not is_secure(folder) and (
        (folder / META_PROPERTIES).exists() or any(folder.glob(f"node-*/data/{META_PROPERTIES}"))
    ):
        raise InvalidInput(
            f"{folder} was formatted without --secure: start it without this option, or specify"
            " another directory with --data"
        )


def _read_state(folder: Path, host: str | None) -> NodeState:
    """Reads node.json. Creates it if it is missing, and stores the host if one is given."""
    path = folder / STATE_FILE
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        stored = NodeState(content["host"], str(content["password"]))
    except FileNotFoundError:
        if is_secure(folder):
            raise InvalidInput(
                f"{path} is missing: restore it from a backup, since the node needs its password"
            ) from None
        stored = None
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} is damaged: restore it from a backup") from None
    if stored is not None and host in (None, stored.host):
        return stored
    state = NodeState(host, _generate_password() if stored is None else stored.password)
    text = json.dumps({"host": state.host, "password": state.password})
    write_file(path, text.encode(), mode=SECRET_MODE)
    return state


def _certificate_hosts(host: str | None) -> list[str]:
    return list(dict.fromkeys([*LOCAL_HOSTS, *([host] if host is not None else own_hosts())]))


def _generate_password() -> str:
    return base64.urlsafe_b64encode(SystemRandomness().bytes(_PASSWORD_BYTES)).decode()


def _create_password(folder: Path) -> str:
    password = _generate_password()
    write_file(folder / PASSWORD_FILE, f"{password}\n".encode(), mode=SECRET_MODE)
    return password


def _read_password(folder: Path) -> str | None:
    """Returns None if the administrator has removed the file."""
    try:
        return (folder / PASSWORD_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def _format(config: BrokerConfig, passwords: dict[str, str]) -> None:
    from lograft.broker.quorum.formatting import FormatRequest, Standalone, format_directories

    randomness = SystemRandomness()
    request = FormatRequest(
        cluster_id=FormatRequest.for_new_cluster(randomness, controllers=None).cluster_id,
        controllers=Standalone(),
        scram=tuple(
            _credential(name, password, randomness) for name, password in passwords.items()
        ),
    )
    format_directories(
        RealDisk(), config, request, randomness=randomness, now_ms=SystemClock().wall_ms()
    )


def _credential(name: str, password: str, randomness: SystemRandomness) -> ScramCredential:
    text = f"{MECHANISM}=[name={name},password={password},iterations={ITERATIONS}]"
    return parse_credential(text, randomness)


def _write_client_files(folder: Path, address: Address) -> None:
    password = _read_password(folder)
    if password is None:
        return
    authority = folder / AUTHORITY
    for name, text in (
        (CLIENT_FILE, client_properties(address, password, authority)),
        (LIBRDKAFKA_FILE, librdkafka_properties(address, password, authority)),
    ):
        write_file(folder / name, text.encode(), mode=SECRET_MODE)


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _properties(settings: dict[str, str]) -> str:
    return "".join(
        f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()
    )
