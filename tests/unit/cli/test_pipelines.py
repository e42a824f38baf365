"""`lograft pipeline status` and `stop`, which read the files of a run."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lograft.cli.pipelines import (
    AlreadyRunning,
    NotStopped,
    Status,
    _Journal,
    _lock,
    descriptions,
    progress_line,
    redirect_stderr,
    run_and_show,
    status_lines,
    status_of,
    stop_and_wait,
)
from lograft.model.errors import InvalidConfig
from lograft.model.types import TopicPartition
from lograft.spark.lag import Lag

LAG = Lag("lake", 7, 1_200, 345.6, {TopicPartition("t", 0): 10, TopicPartition("t", 1): 5})


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "orders.toml"
    source = '[source]\nbootstrap = "h:1"\ntopics = ["t"]\n'
    file.write_text(f'{source}[lake]\nfolder = "{tmp_path}/lake"\n')
    (tmp_path / "lake").mkdir()
    return str(file)


def test_descriptions_list_all_pipelines() -> None:
    assert [name for name, _ in descriptions()] == ["lake", "windows", "audit", "state"]


def test_a_progress_line_contains_rows_rate_and_lag() -> None:
    assert progress_line(LAG).split() == [
        "batch",
        "7",
        "1,200",
        "rows",
        "346",
        "rows/s",
        "lag",
        "15",
    ]


def test_an_unknown_lag_is_a_question_mark() -> None:
    assert progress_line(replace(LAG, behind={})).split()[-2:] == ["lag", "?"]


def test_status_follows_a_run(config: str, tmp_path: Path) -> None:
    assert status_of("lake", config).state == "never run"
    journal = _Journal("lake", tmp_path / "lake")
    assert status_of("lake", config).state == "running"
    journal.add(LAG)
    journal.add(replace(LAG, behind={}))
    status = status_of("lake", config)
    assert (status.batch, status.rows, status.behind, status.pid) == (7, 2_400, 15, os.getpid())
    journal.end("failed", problem="no broker")
    lines = status_lines(status_of("lake", config))
    assert lines[0] == "lake: failed"
    assert lines[-1].strip() == "no broker"


def test_a_run_that_was_killed_is_not_reported_as_running(config: str, tmp_path: Path) -> None:
    file = tmp_path / "lake" / "_status.json"
    # Higher than any process id.
    file.write_text(json.dumps({"pipeline": "lake", "state": "running", "pid": 1 << 30}))
    assert status_of("lake", config).state == "exited unexpectedly"
    with pytest.raises(NotStopped, match="exited unexpectedly"):
        stop_and_wait("lake", config)
    assert status_lines(Status("lake", "never run")) == ["lake: never run"]


def test_invalid_pipelines_and_configs_are_rejected(config: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"has no section \[state\]"):
        status_of("state", config)
    with pytest.raises(InvalidConfig, match="unknown pipeline 'source': use one of lake, windows"):
        status_of("source", config)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match=r"binary\.toml is not UTF-8 text"):
        status_of("lake", str(tmp_path / "binary.toml"))


def test_only_one_run_of_a_pipeline_at_a_time(config: str, tmp_path: Path) -> None:
    with _lock("lake", tmp_path / "lake"):
        with pytest.raises(AlreadyRunning, match=r"lake is already running in .*/lake:"):
            run_and_show("lake", config)
        assert status_of("lake", config).state == "never run", (
            "the status of the first run is untouched"
        )


def test_stderr_of_spark_goes_to_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with redirect_stderr(tmp_path / "log"):
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'noise')"], check=True)
    os.write(2, b"ours")
    assert (tmp_path / "log").read_text() == "noise"
    assert capfd.readouterr().err == "ours"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_requests_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    journal = _Journal("lake", tmp_path)
    before = signal.getsignal(number)
    with journal.interruptible():
        signal.raise_signal(number)
    assert journal.is_interrupted
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    journal = _Journal("lake", tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with journal.interruptible():
            signal.raise_signal(signal.SIGHUP)
        assert not journal.is_interrupted
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
