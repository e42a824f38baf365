"""Exit codes and error messages of commands."""

import io
import logging
import os
import signal
import subprocess
import sys
import time
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from lograft.cli.main import main

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0
controller.listener.names=CONTROLLER
"""


@dataclass
class Output:
    code: int
    out: str
    err: str


class Run(Protocol):
    def __call__(self, *arguments: str, text: str = "") -> Output: ...


@pytest.fixture
def lograft(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `main` in this process: starting processes would take most of the time."""
    monkeypatch.delenv("LOGRAFT_TRACE", raising=False)

    def run(*arguments: str, text: str = "") -> Output:
        monkeypatch.setattr(sys, "argv", ["lograft", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.raises(SystemExit) as exit_info:
            main()
        shown = capsys.readouterr()
        code = exit_info.value.code
        return Output(code if isinstance(code, int) else 0, shown.out, shown.err)

    return run


def properties(folder: Path, extra: str = "") -> str:
    path = folder / "server.properties"
    path.write_text(f"{PROPERTIES}log.dirs={folder}/data\n{extra}")
    return str(path)


def test_help_lists_the_commands_without_importing_other_rooms() -> None:
    start = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, "-m", "lograft.cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    seconds = time.perf_counter() - start
    for command in ("start", "server", "storage", "dump-log", "metadata-shell", "groups"):
        assert f"  {command} " in shown.stdout
    # A loose limit for busy machines; the benchmark measures it.
    assert seconds < 5
    probe = (
        "import sys, lograft.cli.commands;"
        " print([m for m in sys.modules if m.startswith('lograft.')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    modules = set(literal_eval(loaded.stdout)) - {"lograft.cli", "lograft.cli.options"}
    modules -= {"lograft.model", "lograft.model.lazy_names"}  # for the lazy names of `lograft`
    assert all(name.startswith("lograft.cli.") and name.endswith("commands") for name in modules)
    no_rich = (
        "import sys, lograft.cli.commands; print('rich' in sys.modules, 'asyncio' in sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", no_rich], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.strip() == "False False"


@pytest.mark.parametrize(("module", "code"), [("typer", -signal.SIGINT), ("lograft.node", 130)])
def test_an_interrupt_during_imports_prints_no_stack_trace(
    tmp_path: Path, module: str, code: int
) -> None:
    program = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["lograft", "start", "--data", {str(tmp_path / "data")!r}, "--port", "0"]
from lograft.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, "")


def test_random_uuid_prints_kafkas_text_form(lograft: Run) -> None:
    assert len(lograft("storage", "random-uuid").out.strip()) == 22


def test_info_describes_formatted_log_dirs(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path, "num.partition=3\n")
    before = lograft("storage", "info", "-c", config)
    assert before.code == 1
    assert f"Found problem:\n  {tmp_path}/data does not exist" in before.out
    done = lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    assert done.code == 0
    assert "dynamic metadata voter directory" in done.out
    assert "ignoring unknown settings: num.partition" in done.err
    info = lograft("storage", "info", "-c", config)
    assert info.code == 0
    assert "cluster.id=abc" in info.out
    again = lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    assert again.code == 1
    assert again.err.splitlines()[-1].startswith("lograft: ")
    assert "--ignore-formatted" in again.err
    kept = lograft("storage", "format", "-t", "abc", "-c", config, "--standalone", "-g")
    assert kept.out == "All of the log directories are already formatted.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["server", "nothere.properties"], "cannot read nothere.properties"),
        (["server", "{config}"], "is not formatted: run 'lograft storage format"),
        (["storage", "format", "-t", "a", "-c", "{config}"], "you must specify one of"),
        (["storage", "format", "-t", "a", "-c", "{config}", "-s", "-N"], "specify only one of"),
        (["storage", "format", "-t", "a", "-c", "{config}", "-s", "-f", "x"], "name=level"),
        (["storage", "format", "-t", "a", "-c", "{config}", "-s", "-r", "9"], "Unknown release"),
        (["dump-log", "--files", "nothere.log"], "nothere.log: No such file"),
        (["metadata-shell", "--snapshot", "nothere"], "nothere: No such file"),
        (["start", "--data", "a,b"], "one directory"),
        (["start", "--port", "65535"], "leaves no ports for the controller"),
    ],
)
def test_an_error_is_a_single_line(
    tmp_path: Path, lograft: Run, arguments: list[str], message: str
) -> None:
    config = properties(tmp_path)
    done = lograft(*(argument.replace("{config}", config) for argument in arguments))
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_log_dir_that_cannot_be_locked_is_reported_by_name(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path)
    lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    (tmp_path / "data" / ".lock").mkdir()  # not even root can open a directory as a file
    done = lograft("server", config)
    assert done.code == 1
    assert done.err.strip() == f"lograft: {tmp_path}/data/.lock: Is a directory"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["server"],
        ["start", "--port", "x"],
        ["start", "--port", "70000"],
        ["dump-log"],
    ],
)
def test_a_usage_error_exits_with_2(lograft: Run, arguments: list[str]) -> None:
    done = lograft(*arguments)
    assert done.code == 2
    assert "Error: " in done.err
    assert "Traceback" not in done.err


def test_zookeeper_mode_is_rejected_with_a_single_line(tmp_path: Path, lograft: Run) -> None:
    config = tmp_path / "zk.properties"
    config.write_text("broker.id=0\nzookeeper.connect=localhost:2181\n")
    done = lograft("server", str(config))
    assert done.code == 1
    assert "ZooKeeper mode" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_closed_output_pipe_is_not_an_error(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path)
    lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    files = ",".join([f"{tmp_path}/data/bootstrap.checkpoint"] * 300)
    command = f"{sys.executable} -m lograft.cli.main dump-log --files {files} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""


def test_the_metadata_shell_reads_commands_from_a_pipe(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path)
    lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    snapshot = f"{tmp_path}/data/bootstrap.checkpoint"
    shown = lograft(
        "metadata-shell", "--snapshot", snapshot, text="cd image/features\ncat metadataVersion\n"
    )
    assert shown.out == "Optional[4.3-IV0]\n"
    once = lograft("metadata-shell", "--snapshot", snapshot, "cat", "/image/nothing")
    assert once.code == 1
    assert once.err == "/image/nothing: no such file or folder\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to-latest"], "specify either --topic or --all-topics"),
        (["--to-latest", "--topic", "t", "--all-topics"], "specify either --topic or --all-topics"),
        (["--all-topics"], "specify exactly one of"),
        (["--all-topics", "--to-latest", "--shift-by", "-5"], "specify exactly one of"),
    ],
)
def test_a_reset_requires_a_scope_and_a_target(
    lograft: Run, options: list[str], message: str
) -> None:
    shown = lograft("groups", "reset", "-b", "localhost:1", "g", *options)
    assert shown.code == 2
    assert message in shown.err


def test_shell_completion_offers_commands() -> None:
    def complete(words: str, index: int) -> list[str]:
        environment = os.environ | {
            "COMP_WORDS": words,
            "COMP_CWORD": str(index),
            "_LOGRAFT_COMPLETE": "complete_bash",
        }
        command = [str(Path(sys.executable).with_name("lograft"))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.stdout.split()

    assert complete("lograft topi", 1) == ["topics"]
    assert {"create", "describe", "elect"} <= set(complete("lograft topics ", 2))


def test_a_command_restores_the_log_level_of_clients(lograft: Run) -> None:
    clients = logging.getLogger("lograft.client")
    before = clients.level
    assert lograft("topics", "list", "--bootstrap-server", "127.0.0.1:1").code == 3
    assert lograft("produce", "t", "v", "--bootstrap-server", "127.0.0.1:1").code == 3
    assert clients.level == before


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"), [("--version", 0), ("topics list -b 127.0.0.1:1", 3)]
)
def test_standard_streams_may_be_closed(closed: str, arguments: str, code: int) -> None:
    command = f'exec "{sys.executable}" -m lograft.cli.main {arguments} {closed}'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert "bug" not in done.stderr
