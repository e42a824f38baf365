"""The Python examples of the README run unchanged. tests/spark runs the one for Spark."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.servers import Server

README = Path(__file__).parents[2] / "README.md"


def example_with(text: str) -> str:
    """Returns the only Python example that contains the text."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    [example] = (code for code in blocks if text in code)
    return str(example)


def run(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.clients
def test_the_example_of_the_client_prints_a_record(server: Server) -> None:
    example = example_with("from lograft import").replace("localhost:9092", server.bootstrap)
    assert run("-c", example) == "numbers b'0'\n"


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    path = tmp_path / "test_example.py"
    path.write_text(example_with("lograft.testing"))
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", path)
