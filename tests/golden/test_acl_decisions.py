"""Decisions of Kafka's StandardAuthorizer about random sets of ACLs, recorded by
`python -m tests.compatibility.test_authorizer`, which compares many more."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.acl_worlds import answer

DECISIONS: Final = Path(__file__).parent / "acl_decisions.txt.gz"
SEPARATOR: Final = " => "


def write_decisions(lines: Sequence[str], decisions: Sequence[str]) -> None:
    pairs = zip(lines, decisions, strict=True)
    text = "".join(f"{line}{SEPARATOR}{decided}\n" for line, decided in pairs)
    DECISIONS.write_bytes(gzip.compress(text.encode(), mtime=0))


def test_decisions_are_those_of_kafka() -> None:
    lines = gzip.decompress(DECISIONS.read_bytes()).decode().splitlines()
    assert len(lines) > 1_000
    for line in lines:
        question, _, decided = line.partition(SEPARATOR)
        assert answer(question) == decided, line
