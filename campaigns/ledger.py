"""The ledger of campaigns: one JSON object per line, appended and never rewritten.

A line covers the seeds `first … first + seeds - 1` of one kind at one commit. A campaign with a
ledger continues after the highest seed in it, so that no seed counts twice and an interrupted
campaign loses at most one line. `python -m campaigns report` reads the ledger."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

#: CPU time after which a line is written.
SECONDS_PER_LINE: Final = 20.0
#: Violations recorded per line.
VIOLATIONS_MAX: Final = 50


@dataclass(slots=True)
class Line:
    kind: str
    commit: str
    first: int
    seeds: int = 0
    #: Number of distinct trace hashes of these seeds.
    distinct_traces: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    #: [seed, invariant]
    violations: list[tuple[int, str]] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)


class Ledger:
    def __init__(self, path: Path, *, commit: str) -> None:
        self._path = path
        self._commit = commit
        self._open: dict[str, tuple[Line, set[str]]] = {}
        self.lines = read_ledger(path)

    def next_seed(self, kind: str, *, first: int = 0) -> int:
        ends = [line.first + line.seeds for line in self.lines if line.kind == kind]
        return max([first, *ends])

    def add(
        self,
        kind: str,
        seed: int,
        trace_hash: str,
        *,
        simulated_seconds: float,
        cpu_seconds: float,
        figures: dict[str, int],
        invariant: str = "",
    ) -> None:
        """Adds a seed. Seeds of a kind must be in order and without gaps."""
        if kind not in self._open:
            self._open[kind] = (Line(kind, self._commit, seed), set())
        line, traces = self._open[kind]
        assert seed == line.first + line.seeds, (kind, seed)
        line.seeds += 1
        traces.add(trace_hash)
        line.distinct_traces = len(traces)
        line.simulated_seconds = round(line.simulated_seconds + simulated_seconds, 3)
        line.cpu_seconds = round(line.cpu_seconds + cpu_seconds, 3)
        line.figures = dict(Counter(line.figures) + Counter(figures))
        if invariant and len(line.violations) < VIOLATIONS_MAX:
            line.violations.append((seed, invariant))
        if line.cpu_seconds >= SECONDS_PER_LINE:
            self.write(kind)

    def write(self, kind: str) -> None:
        line, _ = self._open.pop(kind)
        self.lines.append(line)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(line.to_json() + "\n")

    def close(self) -> None:
        for kind in list(self._open):
            self.write(kind)


def read_ledger(path: Path) -> list[Line]:
    """Reads the lines; a last line torn by a crash is ignored, and its seeds are run again."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            fields = json.loads(text)
        except ValueError:
            continue
        fields["violations"] = [(seed, invariant) for seed, invariant in fields["violations"]]
        lines.append(Line(**fields))
    return lines


def totals(lines: Iterable[Line]) -> dict[str, Line]:
    """Returns the sum of all lines for each kind, with the commit of the last line."""
    result: dict[str, Line] = {}
    for line in lines:
        total = result.setdefault(line.kind, Line(line.kind, line.commit, line.first))
        total.commit = line.commit
        total.first = min(total.first, line.first)
        total.seeds += line.seeds
        total.distinct_traces += line.distinct_traces
        total.simulated_seconds += line.simulated_seconds
        total.cpu_seconds += line.cpu_seconds
        total.violations += line.violations
        total.figures = dict(Counter(total.figures) + Counter(line.figures))
    return result
