"""`lograft start` and `lograft server`: read the settings of a node and run it."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lograft.model.errors import InvalidInput
from lograft.model.properties import parse_properties
from lograft.model.settings.broker import BrokerConfig, broker_config, unknown_settings

if TYPE_CHECKING:
    from lograft.node import Node

#: The controller and the HTTP listener of an embedded node use the client port plus these.
CONTROLLER_PORT_STEP: Final = 1
HTTP_PORT_STEP: Final = 2
EMBEDDED_NODE_ID: Final = "1"


def read_properties(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    try:
        return parse_properties(text)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def read_config(path: str, overrides: Mapping[str, str] | None = None) -> BrokerConfig:
    """Reads the settings of a file and resolves its variables. Warns about unknown settings on
    stderr."""
    properties = read_properties(path) | dict(overrides or {})
    try:
        if "config.providers" in properties:
            from lograft.cli.provider_sources import resolve_variables

            properties = resolve_variables(properties)
        config = broker_config(properties)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    unknown = unknown_settings(config)
    if unknown:
        print(
            f"lograft: warning: {path}: ignoring unknown settings: {', '.join(unknown)}",
            file=sys.stderr,
        )
    return config


def embedded_properties(data: str, port: int, *, node_id: str = EMBEDDED_NODE_ID) -> dict[str, str]:
    """Returns the settings of a node with a quorum of its own, reachable from this machine only."""
    if port + HTTP_PORT_STEP > 65535:
        raise InvalidInput(
            f"--port {port} leaves no ports for the controller and HTTP: use a lower port"
        )
    http_port = port + HTTP_PORT_STEP if port else 0
    controller_port = port + CONTROLLER_PORT_STEP if port else 0
    return {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        # Required, but not used by a quorum of one voter.
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port or 9093}",
        "log.dirs": data,
        "lograft.http.listeners": f"http://localhost:{http_port}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def start_embedded(data: str, port: int) -> None:
    from lograft.broker.quorum.formatting import FormatRequest, Standalone, format_directories
    from lograft.cli.local_cluster import cluster_size
    from lograft.runtime.clock import SystemClock
    from lograft.runtime.disk import RealDisk
    from lograft.runtime.randomness import SystemRandomness
    from lograft.storage.log_dirs import read_meta_properties

    if "," in data:
        raise InvalidInput("--data takes one directory, whose name cannot contain a comma")
    size = cluster_size(Path(data))
    if size:
        raise InvalidInput(
            f"{data} contains a cluster of {size} nodes: start it with --nodes {size}, or specify"
            " another directory with --data"
        )
    disk = RealDisk()
    meta = read_meta_properties(disk, data)
    # The directory may have been formatted for a node with another id.
    node_id = EMBEDDED_NODE_ID if meta is None else str(meta.node_id)
    config = broker_config(embedded_properties(data, port, node_id=node_id))
    if meta is None:
        randomness = SystemRandomness()
        request = FormatRequest.for_new_cluster(randomness, controllers=Standalone())
        format_directories(
            disk, config, request, randomness=randomness, now_ms=SystemClock().wall_ms()
        )
        print(f"Formatted {data}.", flush=True)
    _run(config)


def serve_file(path: str, overrides: Mapping[str, str] | None = None) -> None:
    """Runs a node with the settings of a file; `overrides` take precedence."""
    _run(read_config(path, overrides))


def _run(config: BrokerConfig) -> None:
    from lograft import node

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    node.run(config, _print_addresses)


def _print_addresses(node: "Node") -> None:
    endpoints = node.config.broker_listeners or node.config.controller_listeners
    names = [endpoint.name for endpoint in endpoints]
    addresses = " and ".join(str(node.addresses[name]) for name in names)
    for url in node.http_urls:
        print(f"Metrics and health: {url}/metrics, {url}/health/ready", flush=True)
    print(f"Lograft is listening on {addresses} (Ctrl-C stops it)", flush=True)
