"""`lograft demo` as a process, without its Spark part; `make demo` runs all of it."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lograft.cli.demo.requirements import find_java_problem
from lograft.cli.demo.shop import BROKEN_EVERY, generate_orders
from lograft.cli.demo.steps import show_missing, spark_log

LOGRAFT = str(Path(sys.executable).with_name("lograft"))


def run_demo(*options: str, **environment: str) -> str:
    done = subprocess.run(
        [LOGRAFT, "demo", *options],
        env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
        | environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_spark_part_is_skipped_without_java(tmp_path: Path) -> None:
    output = run_demo(PATH=str(tmp_path), TMPDIR=str(tmp_path))
    assert "5,000 orders" in output
    assert "120,000 events written" in output
    unwrapped = " ".join(output.split())
    assert "Skipping the Spark part: Java 17 or newer is not installed." in unwrapped
    assert list(tmp_path.iterdir()) == [], "the node's directory is deleted"


def test_the_name_of_a_missing_extra_is_printed() -> None:
    output = io.StringIO()
    missing = ["PySpark is not installed (pip install 'lograft[spark]')", "Java is too old"]
    show_missing(Console(file=output, width=200), missing)
    assert output.getvalue() == f"Skipping the Spark part: {missing[0]} and {missing[1]}.\n"


def test_no_spark_skips_the_spark_part() -> None:
    assert "Spark" not in run_demo("--no-spark").split("Next steps")[0]


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25" 2025-09-16', None),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11, and Spark needs Java 17 or newer"),
        ('java version "1.8.0_392"', "is Java 8, and Spark needs Java 17 or newer"),
        (None, "does not run, and Spark needs Java 17 or newer"),
    ],
)
def test_the_version_of_the_java_that_spark_would_run_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, problem: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\nexit {int(version is None)}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java_problem() == (None if problem is None else f"{java} {problem}")


def test_the_events_of_the_shop_are_deterministic() -> None:
    count = 2 * BROKEN_EVERY
    first = list(generate_orders(count, 1_700_000_000_000))
    assert first == list(generate_orders(count, 1_700_000_000_000))
    assert sum(not event.value.endswith(b"}") for event in first) == 2


def test_spark_logs_to_a_file_whose_path_is_shown_with_an_error(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    log = tmp_path / "spark.log"
    with spark_log(log, console):
        os.write(2, b"a warning\n")
    assert log.read_text() == "a warning\n"
    with pytest.raises(RuntimeError), spark_log(log, console):
        raise RuntimeError
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == f"Spark's log: {log}\n"
