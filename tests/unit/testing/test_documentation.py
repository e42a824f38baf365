"""Runs the examples of docs/testing.md, which are tests."""

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "testing.md"


def test_the_examples_pass(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(examples) >= 4
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    result = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-q", "-p", "lograft.testing.plugin"),
            *("-p", "no:cacheprovider", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
