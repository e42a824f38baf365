"""Tests of running a pipeline, without Spark."""

import signal

import pytest

from lograft.spark.pipelines import running
from lograft.spark.pipelines.settings import Spark


class FakeBuilder:
    """Replaces the SIGINT handler, as Spark does when it starts."""

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: self

    def getOrCreate(self) -> None:
        signal.signal(signal.SIGINT, lambda number, frame: None)


class FakeSession:
    builder = FakeBuilder()


def test_new_session_preserves_the_sigint_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SparkSession", FakeSession)
    before = signal.getsignal(signal.SIGINT)
    try:
        running.new_session(Spark(), "lake")
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)
