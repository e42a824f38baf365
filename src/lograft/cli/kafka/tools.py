"""The list of tools, and the argument parser that they share."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn, Protocol

from lograft.cli.contexts import SERVERS
from lograft.cli.node_runner import read_properties

#: Tools and their modules in this package.
TOOLS: Final = {
    "kafka-topics": "topics",
    "kafka-acls": "acls",
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
    def run(self, words: Sequence[str]) -> int:
        """Runs the tool with its command line; returns the exit code."""


def run_tool(name: str, words: Sequence[str]) -> None:
    tool: Tool = import_module(f"lograft.cli.kafka.{TOOLS[name]}")
    sys.exit(tool.run(words))


class _KafkaParser(argparse.ArgumentParser):
    """Exits with code 1 after a usage error, as Kafka's tools do."""

    def error(self, message: str) -> NoReturn:
        print(f"{message}\n{self.format_usage()}", file=sys.stderr, end="")
        sys.exit(1)


class Parser(_KafkaParser):
    def __init__(self, name: str, about: str) -> None:
        super().__init__(prog=f"lograft {name}", description=about, allow_abbrev=False)

    def add_actions(self) -> "argparse._SubParsersAction[_KafkaParser]":
        """Adds subcommands; the chosen one becomes the argument `action`."""
        return self.add_subparsers(dest="action", required=True, parser_class=_KafkaParser)

    def add_connection(self, *config_flags: str, controllers: bool = False) -> None:
        """Adds --bootstrap-server, and the option of a file with client settings."""
        self.add_argument("--bootstrap-server", metavar="HOST:PORT,…")
        if controllers:
            self.add_argument("--bootstrap-controller", metavar="HOST:PORT,…")
        self.add_argument("--command-config", *config_flags, dest="command_config", metavar="FILE")

    def require_one(self, arguments: argparse.Namespace, *actions: str) -> str:
        """Returns which of these flags is set; it is an error unless exactly one is."""
        found = [action for action in actions if getattr(arguments, action)]
        if len(found) != 1:
            flags = ", ".join(f"--{action.replace('_', '-')}" for action in actions)
            self.error(f"Command must include exactly one action: {flags}")
        return found[0]


def settings_of(parser: Parser, arguments: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {"client.id": parser.prog.split()[-1]}
    if arguments.command_config is not None:
        settings |= read_properties(arguments.command_config)
    controllers = getattr(arguments, "bootstrap_controller", None)
    if controllers is not None:
        settings["bootstrap.controllers"] = controllers
    elif arguments.bootstrap_server is not None:
        settings[SERVERS] = arguments.bootstrap_server
    elif SERVERS not in settings:
        parser.error("Missing required argument: --bootstrap-server")
    return settings
