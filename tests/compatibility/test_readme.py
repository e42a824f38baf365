"""The code of the README runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.servers import Server

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.clients
def test_the_python_example_prints_what_it_sent(server: Server) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    example = code.replace("localhost:9092", server.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'en' b'hello'\n"
