"""Prints the results, and writes them as Markdown, JSON and a plot."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.plot import write_plot
from bench.targets import Results, Target
from tests.compatibility.servers import KINDS

FOLDER: Final = Path(__file__).parent / "results"


def markdown(results: Results, about: dict[str, str], targets: Sequence[Target]) -> str:
    lines = ["# Lograft beside Apache Kafka 4.3.1", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", "## Targets", "", "| workload | figure | Lograft | Kafka | value | target | |"]
    lines.append("|---|---|---:|---:|---:|---:|---|")
    for target in targets:
        value = target.value(results)
        ours = figure(results, "lograft", target.workload, target.figure)
        theirs = figure(results, "kafka", target.workload, target.figure)
        verdict = "–" if value is None else ("met" if target.is_met(value) else "**missed**")
        shown = "–" if value is None else f"{value:.3g}"
        cells = [target.workload, target.figure, ours, theirs, shown, target.text, verdict]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## All figures", "", "| workload | figure | Lograft | Kafka | ratio |"]
    lines.append("|---|---|---:|---:|---:|")
    for workload, name in all_figures(results):
        numbers = [results.get(kind, {}).get(workload, {}).get(name) for kind in KINDS]
        cells = [workload, name, *map(show, numbers), ratio_of(*numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def ratio_of(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.3g}" if ours is not None and theirs else "–"


def all_figures(results: Results) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for workloads in results.values():
        for workload, figures in workloads.items():
            for name in figures:
                found[(workload, name)] = None
    return list(found)


def figure(results: Results, server: str, workload: str, name: str) -> str:
    return show(results.get(server, {}).get(workload, {}).get(name))


def show(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def about_this_run(form: str) -> dict[str, str]:
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "form": form,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load": f"average of {os.getloadavg()[1]:.0f} in the last five minutes, this run included",
        "python": platform.python_version(),
    }


def write(results: Results, about: dict[str, str], targets: Sequence[Target]) -> Path:
    """Writes table, figures and plot of this run to bench/results, and overwrites those of the last
    run of the same form."""
    FOLDER.mkdir(exist_ok=True)
    form = about["form"]
    text = markdown(results, about, targets)
    path = FOLDER / f"{form}.md"
    path.write_text(text)
    record = {"about": about, "results": results}
    (FOLDER / f"{form}.json").write_text(json.dumps(record, indent=1) + "\n")
    write_plot(results, form)
    return path
