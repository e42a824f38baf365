"""kafka-metadata-shell: browses the cluster metadata like a file system."""

import argparse
from collections.abc import Sequence

from lograft.cli.kafka.tools import Parser
from lograft.cli.metadata_shell import run_shell


def run(words: Sequence[str]) -> int:
    parser = Parser(
        "kafka-metadata-shell", "Browse the cluster metadata in a snapshot or log segment."
    )
    parser.add_argument("--snapshot", "-s", required=True, metavar="FILE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(list(words))
    return run_shell(arguments.snapshot, arguments.command)
