"""kafka-server-start: run a node in the foreground, or with -daemon behind it."""

import subprocess
import sys
from collections.abc import Sequence

from lograft.cli.kafka.tools import Parser
from lograft.cli.node_runner import serve_file


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-server-start", "Run the node that a .properties file describes.")
    parser.add_argument("-daemon", action="store_true", help="go on in the background")
    parser.add_argument("properties", metavar="server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args(list(arguments))
    overrides = dict(one.partition("=")[::2] for one in given.override)
    if given.daemon:
        again = [one for one in arguments if one != "-daemon"]
        subprocess.Popen(
            [sys.executable, "-m", "lograft.cli.main", "kafka-server-start", *again],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return 0
    serve_file(given.properties, overrides)
    return 0
