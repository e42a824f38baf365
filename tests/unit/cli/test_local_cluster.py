from pathlib import Path

import pytest

from lograft.cli.local_cluster import last_error


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("lograft: first\nlograft: the last\n2026 INFO lograft.node: other\n", "the last"),
        ('{"level": "INFO", "message": "a"}\n{"level": "CRITICAL", "message": "b"}\n{"cut', "b"),
        ('2026 INFO lograft.node: other\n{"level": "INFO", "message": "a"}\n', None),
    ],
)
def test_the_last_error_of_a_log(tmp_path: Path, log: str, error: str | None) -> None:
    file = tmp_path / "node.log"
    file.write_text(log)
    assert last_error(file) == error
