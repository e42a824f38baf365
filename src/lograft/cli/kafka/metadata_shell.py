"""kafka-metadata-shell: walk through the cluster's metadata as if it were files."""

import argparse
from collections.abc import Sequence

from lograft.cli.kafka.tools import Parser
from lograft.cli.metadata_shell import run_shell


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-metadata-shell", "Walk through the cluster's metadata.")
    parser.add_argument("--snapshot", "-s", required=True, metavar="FILE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(list(arguments))
    return run_shell(given.snapshot, given.command)
