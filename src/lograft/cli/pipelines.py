"""Runs pipelines for people: a line for each micro-batch, a file that says how far it is, one that
asks it to stop, and one with what Spark said. The files are in the pipeline's own folder."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lograft.cli.interrupts import SIGNALS
from lograft.model.errors import InvalidConfig, LograftError

_STATUS: Final = "_status.json"
_STOP: Final = "_stop"
_LOCK: Final = "_lock"
_SPARK_LOG: Final = "_spark.log"
_STOP_SECONDS_MAX: Final = 120
_LOOK_SECONDS: Final = 0.2


class AlreadyRunning(LograftError):
    """One run of a pipeline at a time."""


class NotStopped(LograftError):
    """The pipeline has not done what it was asked to."""


@dataclass(frozen=True, slots=True)
class Status:
    pipeline: str
    #: running, done, stopped, failed; "not run yet" and "ended without a word" are found out.
    state: str
    pid: int = 0
    batch: int = -1
    rows: int = 0
    rows_per_second: float = 0.0
    behind: int = 0
    started: str = ""
    updated: str = ""
    problem: str = ""


def descriptions() -> list[tuple[str, str]]:
    from lograft.spark.pipelines.catalogue import PIPELINES

    return list(PIPELINES.items())


def run_and_show(name: str, config: str) -> None:
    folder = _folder(name, config)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(name, folder):
        _run_and_show(name, config, folder)


def _run_and_show(name: str, config: str, folder: Path) -> None:
    from lograft.spark.lag import Lag
    from lograft.spark.pipelines.running import RunObserver, run_pipeline

    (folder / _STOP).unlink(missing_ok=True)
    journal = _Journal(name, folder)

    def print_batch(lag: Lag) -> None:
        journal.add(lag)
        print(line_of(lag), flush=True)

    observer = RunObserver(
        on_batch=print_batch,
        on_message=lambda message: print(message, flush=True),
        should_stop=lambda: journal.is_interrupted or (folder / _STOP).exists(),
    )
    with journal.interruptible():
        try:
            with _stderr_into(folder / _SPARK_LOG):
                run_pipeline(name, config, observer=observer)
        except BaseException as error:
            print(f"what Spark said is in {folder / _SPARK_LOG}", flush=True)
            journal.end("failed", problem=str(error).splitlines()[0] if str(error) else "")
            raise
    journal.end("stopped" if observer.should_stop() else "done")
    (folder / _STOP).unlink(missing_ok=True)


def line_of(lag: Any) -> str:
    behind = "?" if lag.total is None else f"{lag.total:,}"
    return (
        f"batch {lag.batch_id:>5}  {lag.rows:>12,} rows  {lag.rows_per_second:>12,.0f} rows/s"
        f"  {behind:>12} behind"
    )


def status_of(name: str, config: str) -> Status:
    file = _folder(name, config) / _STATUS
    if not file.exists():
        return Status(name, "not run yet")
    status = Status(**json.loads(file.read_text()))
    if status.state == "running" and not _is_alive(status.pid):
        return Status(**asdict(status) | {"state": "ended without a word"})
    return status


def described(status: Status) -> list[str]:
    lines = [f"{status.pipeline}: {status.state}"]
    if status.batch >= 0:
        lines.append(
            f"  batch {status.batch}, {status.rows:,} rows in all, last at"
            f" {status.rows_per_second:,.0f} rows/s, {status.behind:,} behind"
        )
    if status.started:
        lines.append(f"  started {status.started}, last heard of {status.updated}")
    if status.problem:
        lines.append(f"  {status.problem}")
    return lines


def stop_and_wait(name: str, config: str) -> None:
    status = status_of(name, config)
    if status.state != "running":
        raise NotStopped(f"{name} is not running: {status.state}")
    (_folder(name, config) / _STOP).touch()
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    while (status := status_of(name, config)).state == "running":
        if time.monotonic() > deadline:
            raise NotStopped(f"{name} still runs after {_STOP_SECONDS_MAX} s as {status.pid}")
        time.sleep(_LOOK_SECONDS)
    print(f"{name}: {status.state} after batch {status.batch}")


def _folder(name: str, config: str) -> Path:
    from lograft.spark.pipelines.catalogue import PIPELINES
    from lograft.spark.pipelines.settings import read_settings

    if name not in PIPELINES:
        raise InvalidConfig(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}")
    try:
        settings = read_settings(Path(config).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidConfig(f"{config} is not text in UTF-8") from None
    section = getattr(settings, name, None)
    if section is None:
        raise InvalidConfig(f"{config} has no section [{name}]")
    folder: str = section.folder
    if "://" in folder:
        # Tables may be anywhere; who runs them is known on this machine.
        return Path(config).absolute().parent / f".{name}-{Path(config).stem}"
    return Path(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _alone(name: str, folder: Path) -> Iterator[None]:
    """Two runs at once would write the same table and the same checkpoint. The lock goes with the
    process, however it ends."""
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"{name} is running in {folder} already: lograft pipeline stop ends it"
            ) from None
        yield


@contextmanager
def _stderr_into(file: Path) -> Iterator[None]:
    """Spark's processes, of whichever language, say there what they warn of, and hundreds of lines
    when a query is stopped in the middle of a batch; the terminal is for ours."""
    terminal = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


class _Journal:
    """The status file: written anew, whole, after every batch."""

    def __init__(self, name: str, folder: Path) -> None:
        self._file = folder / _STATUS
        self._status = Status(name, "running", os.getpid(), started=_now(), updated=_now())
        self.is_interrupted = False
        self._write()

    def add(self, lag: Any) -> None:
        self._change(
            batch=lag.batch_id,
            rows=self._status.rows + lag.rows,
            rows_per_second=lag.rows_per_second,
            behind=self._status.behind if lag.total is None else lag.total,
        )

    def end(self, state: str, problem: str = "") -> None:
        self._change(state=state, problem=problem)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """The first Ctrl-C, SIGTERM or SIGHUP requests a clean stop."""

        def interrupt(number: int, frame: object) -> None:
            self.is_interrupted = True

        before = {
            one: signal.signal(one, interrupt)
            for one in (signal.SIGINT, *SIGNALS)
            # What the parent process has set to be ignored (nohup) stays ignored.
            if signal.getsignal(one) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _change(self, **values: Any) -> None:
        self._status = Status(**asdict(self._status) | values | {"updated": _now()})
        self._write()

    def _write(self) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self._status)))
        beside.replace(self._file)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
