"""kafka-server-start: runs a node, with -daemon in the background."""

import subprocess
import sys
from collections.abc import Sequence

from lograft.cli.kafka.tools import Parser
from lograft.cli.node_runner import serve_file


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-server-start", "Run a node with the settings of a .properties file.")
    parser.add_argument("-daemon", action="store_true", help="run in the background")
    parser.add_argument("properties", metavar="server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args(list(words))
    overrides = dict(text.partition("=")[::2] for text in arguments.override)
    if arguments.daemon:
        rest = [argument for argument in words if argument != "-daemon"]
        subprocess.Popen(
            [sys.executable, "-m", "lograft.cli.main", "kafka-server-start", *rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return 0
    serve_file(arguments.properties, overrides)
    return 0
