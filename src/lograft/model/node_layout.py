"""The settings of a node that must be consistent: id, roles, listeners, quorum and log dirs.

Every error message is one sentence that names the settings and says what to change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.listeners import (
    Endpoint,
    SecurityProtocol,
    Voter,
    check_distinct,
    check_distinct_names,
    parse_address,
    parse_endpoints,
    parse_security_map,
    parse_voters,
)
from lograft.model.seams import Address
from lograft.model.settings.broker_table import BROKER_CONFIGS
from lograft.model.settings.keys import split_list
from lograft.model.types import NodeId

UNROUTABLE: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayout:
    node_id: NodeId
    process_roles: frozenset[str]
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    advertised_controller_listeners: tuple[Endpoint, ...]
    listener_security: Mapping[str, SecurityProtocol]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    controller_quorum_voters: tuple[Voter, ...]
    controller_quorum_bootstrap_servers: tuple[Address, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str


def node_layout(values: Mapping[str, str]) -> NodeLayout:
    roles = _roles(values)
    node_id = _node_id(values)
    controller_names = tuple(
        name.upper() for name in split_list(values.get("controller.listener.names", ""))
    )
    if not controller_names:
        raise InvalidConfig(
            "Missing required configuration controller.listener.names: name the listener of the"
            " controllers, for example CONTROLLER"
        )
    listener_texts = split_list(_text(values, "listeners"))
    security = _security_map(values, controller_names, listener_texts)
    if controller_names[0] not in security:
        raise InvalidConfig(
            f"No security protocol defined for listener {controller_names[0]}: add it to"
            " listener.security.protocol.map"
        )
    listeners = parse_endpoints("listeners", listener_texts, security)
    check_distinct(listeners)
    advertised, advertised_controllers = _advertised_endpoints(
        values, listeners, controller_names, security
    )
    _check_roles(roles, listeners, advertised, controller_names)
    voters, servers = _quorum(values, roles, node_id)
    log_dirs = _log_dirs(values)
    metadata_log_dir = values.get("metadata.log.dir", "").strip() or log_dirs[0]
    _check_paths((*log_dirs, metadata_log_dir))
    return NodeLayout(
        node_id=node_id,
        process_roles=roles,
        listeners=listeners,
        advertised_listeners=advertised if "broker" in roles else (),
        advertised_controller_listeners=advertised_controllers,
        listener_security=security,
        controller_listener_names=controller_names,
        inter_broker_listener_name=_inter_broker(values, roles, advertised, security),
        controller_quorum_voters=voters,
        controller_quorum_bootstrap_servers=servers,
        log_dirs=log_dirs,
        metadata_log_dir=metadata_log_dir,
    )


def _text(values: Mapping[str, str], name: str) -> str:
    return values.get(name, BROKER_CONFIGS[name].default or "")


def _roles(values: Mapping[str, str]) -> frozenset[str]:
    words = split_list(values.get("process.roles", ""))
    if not words:
        raise InvalidConfig(
            "Missing required configuration process.roles: set it to broker,controller for a node"
            " that is both, or to broker or controller"
        )
    return frozenset(words)


def _node_id(values: Mapping[str, str]) -> NodeId:
    text = values.get("node.id")
    if text is None:
        raise InvalidConfig(
            "Missing required configuration node.id: give the node a number from 0 on that no"
            " other node of the cluster has"
        )
    node_id = int(text)
    if int(values.get("broker.id", text)) != node_id:
        raise InvalidConfig(
            f"node.id is {node_id} but broker.id is {values['broker.id']}: You must set `node.id`"
            " to the same value as `broker.id`, or remove one of them"
        )
    return NodeId(node_id)


def _security_map(
    values: Mapping[str, str], controller_names: tuple[str, ...], listener_texts: tuple[str, ...]
) -> dict[str, SecurityProtocol]:
    """Applies Kafka's rule: without a map, and without TLS or SASL, controller listeners use
    PLAINTEXT."""
    security = parse_security_map(_text(values, "listener.security.protocol.map"))
    if "listener.security.protocol.map" in values:
        return security
    named = {text.partition("://")[0].strip().upper() for text in listener_texts}
    secure = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}
    if not secure & (named | set(controller_names)):
        for name in controller_names:
            security.setdefault(name, SecurityProtocol.PLAINTEXT)
    return security


def _advertised_endpoints(
    values: Mapping[str, str],
    listeners: tuple[Endpoint, ...],
    controller_names: tuple[str, ...],
    security: Mapping[str, SecurityProtocol],
) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Returns the endpoints that brokers advertise, and those that controllers advertise."""
    own = tuple(endpoint for endpoint in listeners if endpoint.name not in controller_names)
    controllers = tuple(endpoint for endpoint in listeners if endpoint.name in controller_names)
    texts = split_list(values.get("advertised.listeners", ""))
    if not texts:
        return own, controllers
    given = parse_endpoints("advertised.listeners", texts, security)
    check_distinct_names("advertised.listeners", given)
    unknown = [
        endpoint.name
        for endpoint in given
        if endpoint.name not in {endpoint.name for endpoint in listeners}
    ]
    if unknown:
        raise InvalidConfig(
            f"advertised.listeners names {', '.join(unknown)}, which is not among the listeners"
            f" {', '.join(e.name for e in listeners)}"
        )
    by_name = {endpoint.name: endpoint for endpoint in given if endpoint.name in controller_names}
    return (
        tuple(endpoint for endpoint in given if endpoint.name not in controller_names),
        tuple(by_name.get(endpoint.name, endpoint) for endpoint in controllers),
    )


def _check_roles(
    roles: frozenset[str],
    listeners: tuple[Endpoint, ...],
    advertised: tuple[Endpoint, ...],
    controller_names: tuple[str, ...],
) -> None:
    names = [endpoint.name for endpoint in listeners]
    shared = [name for name in names if name in controller_names]
    if "controller" not in roles and shared:
        raise InvalidConfig(
            f"controller.listener.names has {', '.join(shared)}, which is also in listeners: a"
            " node with process.roles=broker must not listen as a controller"
        )
    if "controller" in roles and set(shared) < set(controller_names):
        raise InvalidConfig(
            "controller.listener.names must only contain values appearing in listeners"
            f" ({', '.join(names)}) when process.roles has controller"
        )
    if "broker" not in roles and len(shared) < len(names):
        raise InvalidConfig(
            "listeners must only contain names from controller.listener.names"
            f" ({', '.join(controller_names)}) when process.roles=controller"
        )
    if "broker" in roles:
        if not advertised:
            raise InvalidConfig(
                "There must be at least one broker advertised listener: all listeners appear in"
                " controller.listener.names"
            )
        for endpoint in advertised:
            if endpoint.host in UNROUTABLE:
                raise InvalidConfig(
                    f"advertised.listeners cannot use {endpoint.host}, which clients cannot reach:"
                    f" set advertised.listeners={endpoint.name}://<this host>:{endpoint.port}"
                )


def _inter_broker(
    values: Mapping[str, str],
    roles: frozenset[str],
    advertised: tuple[Endpoint, ...],
    security: Mapping[str, SecurityProtocol],
) -> str:
    if "inter.broker.listener.name" in values and "security.inter.broker.protocol" in values:
        raise InvalidConfig(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be"
            " set"
        )
    default = _text(values, "security.inter.broker.protocol")
    name = values.get("inter.broker.listener.name", default).strip().upper()
    # Kafka's controllers do not require it if it is not set: they have no such listener.
    if name not in security and ("inter.broker.listener.name" in values or "broker" in roles):
        raise InvalidConfig(
            f"inter.broker.listener.name is {name}, which listener.security.protocol.map does not"
            " name"
        )
    if "broker" in roles and name not in {endpoint.name for endpoint in advertised}:
        raise InvalidConfig(
            f"inter.broker.listener.name must be a listener name defined in advertised.listeners:"
            f" {name} is not one of {', '.join(endpoint.name for endpoint in advertised)}"
        )
    return name


def _quorum(
    values: Mapping[str, str], roles: frozenset[str], node_id: NodeId
) -> tuple[tuple[Voter, ...], tuple[Address, ...]]:
    voters = parse_voters(values.get("controller.quorum.voters", ""))
    setting = "controller.quorum.bootstrap.servers"
    servers = tuple(parse_address(setting, text) for text in split_list(values.get(setting, "")))
    if not voters and not servers:
        raise InvalidConfig(
            "either controller.quorum.bootstrap.servers (host:port of controllers) or"
            " controller.quorum.voters (id@host:port) must be set"
        )
    ids = [voter.node_id for voter in voters]
    listed = ", ".join(str(voter) for voter in voters)
    if voters and "controller" in roles and node_id not in ids:
        raise InvalidConfig(
            f"node.id {node_id} has the controller role but is not in controller.quorum.voters"
            f" ({listed}): add it there, or correct node.id"
        )
    if "controller" not in roles and node_id in ids:
        raise InvalidConfig(
            f"node.id {node_id} has only the broker role but is in controller.quorum.voters"
            f" ({listed}): give the broker another node.id"
        )
    return voters, servers


def _log_dirs(values: Mapping[str, str]) -> tuple[str, ...]:
    text = values.get("log.dirs")
    if text is None:
        text = _text(values, "log.dir")
    return tuple(dict.fromkeys(split_list(text)))


def _check_paths(paths: Iterable[str]) -> None:
    for path in paths:
        if "\0" in path:
            raise InvalidConfig(
                f"{path!r} is not a valid path, because it contains a NUL character: correct"
                " log.dirs, log.dir or metadata.log.dir"
            )
