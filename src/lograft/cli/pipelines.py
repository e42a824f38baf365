"""`lograft pipeline`: runs a pipeline, and lets another process follow and stop it.

The pipeline's folder contains a status file, which is replaced after each micro-batch, a lock file,
a stop file, which requests the pipeline to stop, and Spark's log.
"""

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
_POLL_SECONDS: Final = 0.2


class AlreadyRunning(LograftError):
    """Another process is running the pipeline."""


class NotStopped(LograftError):
    """The pipeline is not running, or it did not stop in time."""


@dataclass(frozen=True, slots=True)
class Status:
    pipeline: str
    #: running, done, stopped or failed; "never run" and "exited unexpectedly" are not stored.
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
    folder = _folder_of(name, config)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(name, folder):
        _run_and_show(name, config, folder)


def _run_and_show(name: str, config: str, folder: Path) -> None:
    from lograft.spark.lag import Lag
    from lograft.spark.pipelines.running import RunObserver, run_pipeline

    (folder / _STOP).unlink(missing_ok=True)
    journal = _Journal(name, folder)

    def print_batch(lag: Lag) -> None:
        journal.add(lag)
        print(progress_line(lag), flush=True)

    observer = RunObserver(
        on_batch=print_batch,
        on_message=lambda message: print(message, flush=True),
        should_stop=lambda: journal.is_interrupted or (folder / _STOP).exists(),
    )
    with journal.interruptible():
        try:
            with redirect_stderr(folder / _SPARK_LOG):
                run_pipeline(name, config, observer=observer)
        except BaseException as error:
            print(f"Spark's log: {folder / _SPARK_LOG}", flush=True)
            journal.end("failed", problem=str(error).splitlines()[0] if str(error) else "")
            raise
    journal.end("stopped" if observer.should_stop() else "done")
    (folder / _STOP).unlink(missing_ok=True)


def progress_line(lag: Any) -> str:
    behind = "?" if lag.total is None else f"{lag.total:,}"
    return (
        f"batch {lag.batch_id:>5}  {lag.rows:>12,} rows  {lag.rows_per_second:>12,.0f} rows/s"
        f"  lag {behind:>12}"
    )


def status_of(name: str, config: str) -> Status:
    file = _folder_of(name, config) / _STATUS
    if not file.exists():
        return Status(name, "never run")
    status = Status(**json.loads(file.read_text()))
    if status.state == "running" and not _is_alive(status.pid):
        return Status(**asdict(status) | {"state": "exited unexpectedly"})
    return status


def status_lines(status: Status) -> list[str]:
    lines = [f"{status.pipeline}: {status.state}"]
    if status.batch >= 0:
        lines.append(
            f"  batch {status.batch}, {status.rows:,} rows in total, last batch"
            f" {status.rows_per_second:,.0f} rows/s, lag {status.behind:,}"
        )
    if status.started:
        lines.append(f"  started {status.started}, last updated {status.updated}")
    if status.problem:
        lines.append(f"  {status.problem}")
    return lines


def stop_and_wait(name: str, config: str) -> None:
    status = status_of(name, config)
    if status.state != "running":
        raise NotStopped(f"{name} is not running: {status.state}")
    (_folder_of(name, config) / _STOP).touch()
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    while (status := status_of(name, config)).state == "running":
        if time.monotonic() > deadline:
            raise NotStopped(
                f"{name} did not stop within {_STOP_SECONDS_MAX} s: its process is {status.pid}"
            )
        time.sleep(_POLL_SECONDS)
    print(f"{name}: {status.state} after batch {status.batch}")


def _folder_of(name: str, config: str) -> Path:
    from lograft.spark.pipelines.catalogue import PIPELINES
    from lograft.spark.pipelines.settings import read_settings

    if name not in PIPELINES:
        raise InvalidConfig(f"unknown pipeline {name!r}: use one of {', '.join(PIPELINES)}")
    try:
        settings = read_settings(Path(config).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidConfig(f"{config} is not UTF-8 text") from None
    section = getattr(settings, name, None)
    if section is None:
        raise InvalidConfig(f"{config} has no section [{name}]")
    folder: str = section.folder
    if "://" in folder:
        # The table is not in a local file system, but the status files are always local.
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
def _lock(name: str, folder: Path) -> Iterator[None]:
    """Prevents a second run, which would write the same table and the same checkpoint. The kernel
    releases the lock when the process exits."""
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"pipeline {name} is already running in {folder}: use `lograft pipeline stop`"
            ) from None
        yield


@contextmanager
def redirect_stderr(file: Path) -> Iterator[None]:
    """Redirects stderr to a file. Spark's processes (Java and Python) print warnings to stderr, and
    hundreds of lines when a query is stopped in the middle of a batch."""
    terminal = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


class _Journal:
    """Writes the status file: replaces it atomically after every batch."""

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

        previous_handlers = {
            number: signal.signal(number, interrupt)
            for number in SIGNALS
            # A signal that the parent process ignores (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    def _change(self, **values: Any) -> None:
        self._status = Status(**asdict(self._status) | values | {"updated": _now()})
        self._write()

    def _write(self) -> None:
        new_file = self._file.with_suffix(".new")
        new_file.write_text(json.dumps(asdict(self._status)))
        new_file.replace(self._file)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
