"""Listeners and quorum addresses: parses Kafka's syntax into endpoints, with clear error messages.

`listeners=PLAINTEXT://:9092,CONTROLLER://[::1]:9093` lists the addresses to bind;
`listener.security.protocol.map` gives the protocol of each listener; `advertised.listeners` are the
addresses sent to clients. Port 0 lets the operating system choose; an empty host means all
interfaces.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address
from lograft.model.settings.keys import split_list
from lograft.model.types import NodeId
from lograft.model.uuids import uuid_from_text

PORT_MAX: Final = 65535
_ENDPOINT: Final = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9a-fA-F:.%]+\]|[^:/\[\]]*):(-?[0-9]+)")
_HOST_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:/@\[\]]+):([0-9]+)")


class SecurityProtocol(IntEnum):
    """The numbers are those of the protocol's messages and metadata records."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    #: Upper case, as Kafka normalises it.
    name: str
    #: Without brackets; "" means all interfaces (or, when advertised, this machine's host name).
    host: str
    port: int
    security: SecurityProtocol

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


class Voter(NamedTuple):
    """An entry of controller.quorum.voters, or of --initial-controllers with a directory id."""

    node_id: NodeId
    address: Address
    directory_id: UUID | None = None

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


def parse_security_map(text: str) -> dict[str, SecurityProtocol]:
    result: dict[str, SecurityProtocol] = {}
    for entry in split_list(text):
        name, colon, protocol = entry.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not name or not colon or protocol not in SecurityProtocol.__members__:
            raise InvalidConfig(
                f"listener.security.protocol.map contains {entry!r}: each entry is NAME:PROTOCOL"
                f" with one of {', '.join(SecurityProtocol.__members__)}"
            )
        if name in result:
            raise InvalidConfig(f"listener.security.protocol.map names {name} more than once")
        result[name] = SecurityProtocol[protocol]
    return result


def parse_endpoints(
    setting: str, entries: Iterable[str], security: Mapping[str, SecurityProtocol]
) -> tuple[Endpoint, ...]:
    endpoints = []
    for entry in entries:
        match = _ENDPOINT.fullmatch(entry.strip())
        if match is None or not 0 <= int(match[3]) <= PORT_MAX:
            raise InvalidConfig(
                f"{setting} contains {entry!r}: write NAME://host:port, for example"
                " PLAINTEXT://localhost:9092 or PLAINTEXT://[::1]:9092"
            )
        name = match[1].upper()
        if name not in security:
            raise InvalidConfig(
                f"No security protocol defined for listener {name}: add {name}:PLAINTEXT (or SSL,"
                " SASL_PLAINTEXT, SASL_SSL) to listener.security.protocol.map"
            )
        endpoints.append(Endpoint(name, match[2].strip("[]"), int(match[3]), security[name]))
    return tuple(endpoints)


def check_listener_texts(entries: Sequence[str]) -> None:
    """Raises InvalidConfig for `listeners` that are invalid whatever their security protocols."""
    names = (entry.partition("://")[0].strip().upper() for entry in entries)
    security = dict.fromkeys(names, SecurityProtocol.PLAINTEXT)
    check_distinct(parse_endpoints("listeners", entries, security))


def check_distinct(endpoints: Sequence[Endpoint]) -> None:
    """Raises InvalidConfig unless names are different, and ports too, except for ports chosen by
    the system and for an IPv4 and an IPv6 host that share a port."""
    check_distinct_names("listeners", endpoints)
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in by_port.items():
        v6 = sum(":" in host for host in hosts)
        v4 = sum(bool(re.fullmatch(r"[0-9.]+", host)) for host in hosts)
        if len(hosts) > 1 and not (len(hosts) == 2 and v6 == 1 and v4 == 1):
            raise InvalidConfig(
                f"listeners: Each listener must have a different port: {port} is used"
                f" {len(hosts)} times"
            )


def check_distinct_names(setting: str, endpoints: Sequence[Endpoint]) -> None:
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"{setting}: Each listener must have a different name: {name}")


def parse_address(setting: str, text: str) -> Address:
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or not 0 < int(match[2]) <= PORT_MAX:
        raise InvalidConfig(
            f"{setting} contains {text!r}: each entry should be in the form host:port"
        )
    return Address(match[1].strip("[]"), int(match[2]))


def parse_voters(text: str) -> tuple[Voter, ...]:
    """Parses controller.quorum.voters: 1@host:9093,2@host:9093."""
    voters = []
    for entry in split_list(text):
        node, at, address = entry.partition("@")
        if not at or not re.fullmatch(r"[0-9]{1,10}", node.strip()):
            raise InvalidConfig(
                f"controller.quorum.voters contains {entry!r}: each entry should be in the form"
                " {id}@{host}:{port}"
            )
        parsed = parse_address("controller.quorum.voters", address)
        if parsed.host in ("0.0.0.0", "::"):
            raise InvalidConfig(
                f"controller.quorum.voters contains {entry!r}: other nodes cannot reach"
                f" {parsed.host},"
                " use a routable host"
            )
        voters.append(Voter(NodeId(int(node)), parsed))
    _check_distinct_voters("controller.quorum.voters", voters)
    return tuple(voters)


def parse_initial_controllers(text: str) -> tuple[Voter, ...]:
    """Parses --initial-controllers: 1@host:9093:directoryId,…"""
    voters = []
    for entry in split_list(text):
        node, at, rest = entry.partition("@")
        address, _, directory = rest.rpartition(":")
        if not at or ":" not in address or not re.fullmatch(r"[0-9]{1,10}", node):
            raise InvalidConfig(
                f"--initial-controllers contains {entry!r}: each entry should be in the form"
                " {id}@{host}:{port}:{directoryId}"
            )
        parsed = parse_address("--initial-controllers", address)
        voters.append(Voter(NodeId(int(node)), parsed, uuid_from_text(directory)))
    _check_distinct_voters("--initial-controllers", voters)
    return tuple(voters)


def _check_distinct_voters(setting: str, voters: Sequence[Voter]) -> None:
    ids = [voter.node_id for voter in voters]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise InvalidConfig(f"{setting} names node {node_id} more than once")
