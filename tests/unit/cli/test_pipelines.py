"""What `lograft pipeline status` and `stop` know of a run, from the files that it keeps."""

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
    _alone,
    _Journal,
    _stderr_into,
    described,
    descriptions,
    line_of,
    run_and_show,
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


def test_there_are_four_pipelines() -> None:
    assert [name for name, _ in descriptions()] == ["lake", "windows", "audit", "state"]


def test_a_micro_batch_is_a_line() -> None:
    assert line_of(LAG).split() == [
        "batch",
        "7",
        "1,200",
        "rows",
        "346",
        "rows/s",
        "15",
        "behind",
    ]


def test_what_nobody_has_counted_is_not_called_none() -> None:
    assert line_of(replace(LAG, behind={})).split()[-2:] == ["?", "behind"]


def test_status_follows_a_run(config: str, tmp_path: Path) -> None:
    assert status_of("lake", config).state == "not run yet"
    journal = _Journal("lake", tmp_path / "lake")
    assert status_of("lake", config).state == "running"
    journal.add(LAG)
    journal.add(replace(LAG, behind={}))
    status = status_of("lake", config)
    assert (status.batch, status.rows, status.behind, status.pid) == (7, 2_400, 15, os.getpid())
    journal.end("failed", problem="no broker")
    lines = described(status_of("lake", config))
    assert lines[0] == "lake: failed"
    assert lines[-1].strip() == "no broker"


def test_a_run_that_was_killed_is_not_taken_for_running(config: str, tmp_path: Path) -> None:
    file = tmp_path / "lake" / "_status.json"
    # No process has a number as high as that.
    file.write_text(json.dumps({"pipeline": "lake", "state": "running", "pid": 1 << 30}))
    assert status_of("lake", config).state == "ended without a word"
    with pytest.raises(NotStopped, match="ended without a word"):
        stop_and_wait("lake", config)
    assert described(Status("lake", "not run yet")) == ["lake: not run yet"]


def test_what_is_wrong_with_a_command_is_a_sentence(config: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"has no section \[state\]"):
        status_of("state", config)
    with pytest.raises(InvalidConfig, match="no pipeline 'source'; there are lake, windows"):
        status_of("source", config)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match=r"binary\.toml is not text in UTF-8"):
        status_of("lake", str(tmp_path / "binary.toml"))


def test_a_pipeline_runs_once_at_a_time(config: str, tmp_path: Path) -> None:
    with _alone("lake", tmp_path / "lake"):
        with pytest.raises(AlreadyRunning, match=r"lake is running in .*/lake already"):
            run_and_show("lake", config)
        assert status_of("lake", config).state == "not run yet", "the first run's is untouched"


def test_what_spark_says_is_kept_from_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with _stderr_into(tmp_path / "log"):
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'noise')"], check=True)
    os.write(2, b"ours")
    assert (tmp_path / "log").read_text() == "noise"
    assert capfd.readouterr().err == "ours"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_for_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    journal = _Journal("lake", tmp_path)
    before = signal.getsignal(number)
    with journal.interruptible():
        signal.raise_signal(number)
    assert journal.is_interrupted
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    journal = _Journal("lake", tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with journal.interruptible():
            signal.raise_signal(signal.SIGHUP)
        assert not journal.is_interrupted
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
