"""The code of the README runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.servers import Server

README = Path(__file__).parents[2] / "README.md"


#: What the examples print, in their order: the second copies what the first sent.
PRINTED = ("b'en' b'hello'\n", "1\n", "0 b'0'\n")


@pytest.mark.clients
def test_the_python_examples_print_what_they_should(server: Server) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    examples = [code for code in blocks if "pyspark" not in code]  # tests/spark runs that one
    for code, printed in zip(examples, PRINTED, strict=True):
        example = code.replace("localhost:9092", server.bootstrap)
        done = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed
