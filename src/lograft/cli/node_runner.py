"""`lograft start` and `lograft server`: read the settings of a node and run it."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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

LOGGER: Final = logging.getLogger(__name__)


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


def read_config(path: str) -> BrokerConfig:
    """Reads the settings of a file and resolves its variables. Warns about unknown settings on
    stderr."""
    config = _parse_config(path, {})
    text = _describe_unknown_settings(path, config)
    if text:
        print(f"lograft: warning: {text}", file=sys.stderr)
    return config


def _parse_config(path: str, overrides: Mapping[str, str]) -> BrokerConfig:
    properties = read_properties(path) | dict(overrides)
    try:
        if "config.providers" in properties:
            from lograft.cli.provider_sources import resolve_variables

            properties = resolve_variables(properties)
        return broker_config(properties)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _describe_unknown_settings(path: str, config: BrokerConfig) -> str:
    unknown = unknown_settings(config)
    return f"{path}: ignoring unknown settings: {', '.join(unknown)}" if unknown else ""


def embedded_properties(
    data: str, port: int, *, node_id: str = EMBEDDED_NODE_ID, log_format: str = "text"
) -> dict[str, str]:
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
        "lograft.log.format": log_format,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def start_embedded(data: str, port: int, log_format: str = "text") -> None:
    from lograft.broker.quorum.formatting import FormatRequest, Standalone, format_directories
    from lograft.cli.local_cluster import cluster_size
    from lograft.cli.secure_folder import is_secure
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
    if is_secure(Path(data)):
        raise InvalidInput(
            f"{data} contains a secure node: start it with --secure, or specify another directory"
            " with --data"
        )
    disk = RealDisk()
    meta = read_meta_properties(disk, data)
    # The directory may have been formatted for a node with another id.
    node_id = EMBEDDED_NODE_ID if meta is None else str(meta.node_id)
    properties = embedded_properties(data, port, node_id=node_id, log_format=log_format)
    config = broker_config(properties)
    output = Output(config)
    if meta is None:
        randomness = SystemRandomness()
        request = FormatRequest.for_new_cluster(randomness, controllers=Standalone())
        with output.reporting_errors():
            format_directories(
                disk, config, request, randomness=randomness, now_ms=SystemClock().wall_ms()
            )
        output.announce(f"Formatted {data}.")
    run_node(config, output, output.announce_addresses)


def serve_file(path: str, overrides: Mapping[str, str] | None = None) -> None:
    """Runs a node with the settings of a file; `overrides` take precedence."""
    config = _parse_config(path, overrides or {})
    output = Output(config)
    text = _describe_unknown_settings(path, config)
    if text:
        output.warn(text)
    run_node(config, output, output.announce_addresses)


class Output:
    """What the process that runs a node writes: its log, and on standard output where clients can
    connect. If the log is in JSON, all of it is, so that standard output and standard error may go
    into the same collector of logs."""

    def __init__(self, config: BrokerConfig) -> None:
        from lograft.runtime.log_formats import JSON, configure_logging

        self._formatter = configure_logging(config)
        self._is_json = config.lograft_log_format == JSON

    def announce(self, text: str) -> None:
        if self._is_json:
            record = LOGGER.makeRecord(LOGGER.name, logging.INFO, "", 0, text, (), None)
            text = self._formatter.format(record)
        print(text, flush=True)

    def announce_addresses(self, node: "Node") -> None:
        endpoints = node.config.broker_listeners or node.config.controller_listeners
        names = [endpoint.name for endpoint in endpoints]
        addresses = " and ".join(str(node.addresses[name]) for name in names)
        for url in node.http_urls:
            self.announce(f"Metrics and health: {url}/metrics, {url}/health/ready")
        self.announce(f"Lograft is listening on {addresses} (Ctrl-C stops it)")

    def warn(self, text: str) -> None:
        if self._is_json:
            LOGGER.warning("%s", text)
        else:
            print(f"lograft: warning: {text}", file=sys.stderr)

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Logs an error as the reason why the node exits. As text, the command line prints it."""
        try:
            yield
        except Exception as error:
            if not self._is_json:
                raise
            from lograft.cli.main import error_message, exit_code

            is_trace = bool(os.environ.get("LOGRAFT_TRACE"))
            LOGGER.critical("%s", error_message(error), exc_info=error if is_trace else None)
            raise SystemExit(exit_code(error)) from None


def run_node(config: BrokerConfig, output: Output, on_serving: "Callable[[Node], None]") -> None:
    """Runs a node until it is stopped; `on_serving` is called when it serves clients."""
    from lograft import node

    with output.reporting_errors():
        node.run(config, on_serving)
