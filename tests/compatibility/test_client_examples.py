"""The programs in examples/client run unchanged, and mypy accepts them (make check)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.servers import Server

EXAMPLES = Path(__file__).parents[2] / "examples" / "client"
PRINTED = {
    "produce.py": (
        "one order in the logs of all in-sync replicas\n"
        "100 more\n"
        "refused: the value for topic 'orders' cannot be serialized: Object of type set is not JSON"
        " serializable\n"
        "102 sent, 1 failed\n"
    ),
    "copy_once.py": "copied 10\n",
    "threads.py": "read 102\n",
}


@pytest.mark.clients
@pytest.mark.conformance
def test_every_example_prints_what_it_should(server: Server) -> None:
    assert PRINTED.keys() == {path.name for path in EXAMPLES.glob("*.py")}
    for name, printed in PRINTED.items():
        done = subprocess.run(
            [sys.executable, EXAMPLES / name, server.bootstrap],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed, done.stderr
