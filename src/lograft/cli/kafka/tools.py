"""Which tools there are, and what they have in common."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn, Protocol

from lograft.cli.contexts import SERVERS
from lograft.cli.node_runner import read_properties

#: Their modules in this package.
TOOLS: Final = {
    "kafka-topics": "topics",
    "kafka-configs": "configs",
    "kafka-consumer-groups": "groups",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
    "kafka-reassign-partitions": "reassign",
    "kafka-metadata-quorum": "quorum",
    "kafka-storage": "storage",
    "kafka-server-start": "server",
    "kafka-dump-log": "dump_log",
    "kafka-metadata-shell": "metadata_shell",
}


class Tool(Protocol):
    def run(self, arguments: Sequence[str]) -> int:
        """The exit code."""


def run_tool(name: str, arguments: Sequence[str]) -> None:
    tool: Tool = import_module(f"lograft.cli.kafka.{TOOLS[name]}")
    sys.exit(tool.run(arguments))


class _EndsWithOne(argparse.ArgumentParser):
    """Wrong words end with 1 and what was wrong, as Kafka's tools end."""

    def error(self, message: str) -> NoReturn:
        print(f"{message}\n{self.format_usage()}", file=sys.stderr, end="")
        sys.exit(1)


class Parser(_EndsWithOne):
    def __init__(self, name: str, about: str) -> None:
        super().__init__(prog=f"lograft {name}", description=about, allow_abbrev=False)

    def add_actions(self) -> "argparse._SubParsersAction[_EndsWithOne]":
        """For tools whose first word says what to do; it becomes `action`."""
        return self.add_subparsers(dest="action", required=True, parser_class=_EndsWithOne)

    def add_connection(self, *config_flags: str, controllers: bool = False) -> None:
        """--bootstrap-server, and a file with more settings."""
        self.add_argument("--bootstrap-server", metavar="HOST:PORT,…")
        if controllers:
            self.add_argument("--bootstrap-controller", metavar="HOST:PORT,…")
        self.add_argument("--command-config", *config_flags, dest="command_config", metavar="FILE")

    def require_one(self, given: argparse.Namespace, *actions: str) -> str:
        """Which of these flags was given; exactly one must."""
        found = [one for one in actions if getattr(given, one)]
        if len(found) != 1:
            flags = ", ".join(f"--{one.replace('_', '-')}" for one in actions)
            self.error(f"Command must include exactly one action: {flags}")
        return found[0]


def settings_of(parser: Parser, given: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {"client.id": parser.prog.split()[-1]}
    if given.command_config is not None:
        settings |= read_properties(given.command_config)
    controllers = getattr(given, "bootstrap_controller", None)
    if controllers is not None:
        settings["bootstrap.controllers"] = controllers
    elif given.bootstrap_server is not None:
        settings[SERVERS] = given.bootstrap_server
    elif SERVERS not in settings:
        parser.error("Missing required argument: --bootstrap-server")
    return settings
