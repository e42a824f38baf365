"""The command line as a user meets it: exit codes and sentences."""

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
class Shown:
    code: int
    out: str
    err: str


class Run(Protocol):
    def __call__(self, *arguments: str, text: str = "") -> Shown: ...


@pytest.fixture
def lograft(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`main` in this process: a new one for each call would take most of the time."""
    monkeypatch.delenv("LOGRAFT_TRACE", raising=False)

    def run(*arguments: str, text: str = "") -> Shown:
        monkeypatch.setattr(sys, "argv", ["lograft", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        code = ended.value.code
        return Shown(code if isinstance(code, int) else 0, shown.out, shown.err)

    return run


def properties(folder: Path, extra: str = "") -> str:
    path = folder / "server.properties"
    path.write_text(f"{PROPERTIES}log.dirs={folder}/data\n{extra}")
    return str(path)


def test_help_names_the_commands_and_loads_no_rooms() -> None:
    began = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, "-m", "lograft.cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    seconds = time.perf_counter() - began
    for command in ("start", "server", "storage", "dump-log", "metadata-shell", "groups"):
        assert f"  {command} " in shown.stdout
    # Loose on purpose, for a busy machine; the benchmark measures it.
    assert seconds < 5
    probe = (
        "import sys, lograft.cli.commands;"
        " print([m for m in sys.modules if m.startswith('lograft.')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    modules = set(literal_eval(loaded.stdout)) - {"lograft.cli", "lograft.cli.options"}
    modules -= {"lograft.model", "lograft.model.lazy_names"}  # of the lazy names of `lograft`
    assert all(one.startswith("lograft.cli.") and one.endswith("commands") for one in modules)
    no_rich = (
        "import sys, lograft.cli.commands; print('rich' in sys.modules, 'asyncio' in sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", no_rich], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.strip() == "False False"


@pytest.mark.parametrize(("module", "code"), [("typer", -signal.SIGINT), ("lograft.node", 130)])
def test_an_interrupt_while_python_imports_shows_no_trace(
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


def test_random_uuid(lograft: Run) -> None:
    assert len(lograft("storage", "random-uuid").out.strip()) == 22


def test_format_then_info(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path, "num.partition=3\n")
    before = lograft("storage", "info", "-c", config)
    assert before.code == 1
    assert f"Found problem:\n  {tmp_path}/data does not exist" in before.out
    done = lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    assert done.code == 0
    assert "dynamic metadata voter directory" in done.out
    assert "unknown settings do nothing: num.partition" in done.err
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
    ("arguments", "sentence"),
    [
        (["server", "nothere.properties"], "cannot read nothere.properties"),
        (["server", "{config}"], "is not formatted: run 'lograft storage format"),
        (["storage", "format", "-t", "a", "-c", "{config}"], "you must specify one of"),
        (["storage", "format", "-t", "a", "-c", "{config}", "-s", "-N"], "choose one of"),
        (["storage", "format", "-t", "a", "-c", "{config}", "-s", "-f", "x"], "name=level"),
        (["storage", "format", "-t", "a", "-c", "{config}", "-s", "-r", "9"], "Unknown release"),
        (["dump-log", "--files", "nothere.log"], "nothere.log: No such file"),
        (["metadata-shell", "--snapshot", "nothere"], "nothere: No such file"),
        (["start", "--data", "a,b"], "one folder"),
        (["start", "--port", "65535"], "leaves no port for the controller"),
    ],
)
def test_errors_are_one_sentence(
    tmp_path: Path, lograft: Run, arguments: list[str], sentence: str
) -> None:
    config = properties(tmp_path)
    done = lograft(*(argument.replace("{config}", config) for argument in arguments))
    assert done.code == 1
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path)
    lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    (tmp_path / "data" / ".lock").mkdir()  # nobody can open it as a file, root neither
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
def test_a_wrong_command_line_ends_with_2(lograft: Run, arguments: list[str]) -> None:
    done = lograft(*arguments)
    assert done.code == 2
    assert "Error: " in done.err
    assert "Traceback" not in done.err


def test_zookeeper_mode_is_refused_in_a_sentence(tmp_path: Path, lograft: Run) -> None:
    config = tmp_path / "zk.properties"
    config.write_text("broker.id=0\nzookeeper.connect=localhost:2181\n")
    done = lograft("server", str(config))
    assert done.code == 1
    assert "ZooKeeper mode" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_reader_that_leaves_is_no_error(tmp_path: Path, lograft: Run) -> None:
    config = properties(tmp_path)
    lograft("storage", "format", "-t", "abc", "-c", config, "--standalone")
    files = ",".join([f"{tmp_path}/data/bootstrap.checkpoint"] * 300)
    command = f"{sys.executable} -m lograft.cli.main dump-log --files {files} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""


def test_the_shell_reads_commands_from_a_pipe(tmp_path: Path, lograft: Run) -> None:
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
    ("options", "sentence"),
    [
        (["--to-latest"], "say which offsets"),
        (["--to-latest", "--topic", "t", "--all-topics"], "say which offsets"),
        (["--all-topics"], "say where to with one of"),
        (["--all-topics", "--to-latest", "--shift-by", "-5"], "say where to with one of"),
    ],
)
def test_a_reset_says_what_and_where_to(lograft: Run, options: list[str], sentence: str) -> None:
    shown = lograft("groups", "reset", "-b", "localhost:1", "g", *options)
    assert shown.code == 2
    assert sentence in shown.err


def test_the_shell_completes_words() -> None:
    def offered(words: str, at: int) -> list[str]:
        environment = os.environ | {
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
            "_LOGRAFT_COMPLETE": "complete_bash",
        }
        command = [str(Path(sys.executable).with_name("lograft"))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.stdout.split()

    assert offered("lograft top", 1) == ["topics"]
    assert {"create", "describe", "elect"} <= set(offered("lograft topics ", 2))


def test_a_command_in_a_larger_program_leaves_its_logging_alone(lograft: Run) -> None:
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
