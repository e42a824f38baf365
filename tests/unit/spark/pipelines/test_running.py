"""What running a pipeline does around Spark."""

import signal

import pytest

from lograft.spark.pipelines import running
from lograft.spark.pipelines.settings import Spark


class GreedyBuilder:
    """Takes Ctrl-C for itself, as Spark does when it starts."""

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: self

    def getOrCreate(self) -> None:
        signal.signal(signal.SIGINT, lambda number, frame: None)


class GreedySession:
    builder = GreedyBuilder()


def test_ctrl_c_stays_with_who_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SparkSession", GreedySession)
    before = signal.getsignal(signal.SIGINT)
    try:
        running.new_session(Spark(), "lake")
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)
