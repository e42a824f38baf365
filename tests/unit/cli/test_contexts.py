"""Contexts: their file, and the precedence of the sources of bootstrap servers."""

import json
import stat
import sys
from pathlib import Path

import pytest

from lograft.cli.contexts import client_settings, contexts_path
from lograft.cli.main import main
from lograft.model.errors import InvalidInput


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGRAFT_CONFIG_DIR", str(tmp_path / "settings"))
    # Setting them here makes monkeypatch restore them if a command changes them.
    for name in ("LOGRAFT_CONTEXT", "LOGRAFT_BOOTSTRAP_SERVERS", "LOGRAFT_TRACE"):
        monkeypatch.setenv(name, "")
    return tmp_path


def lograft(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    sys.argv = ["lograft", *arguments]
    with pytest.raises(SystemExit) as exit_info:
        main()
    shown = capsys.readouterr()
    return int(exit_info.value.code or 0), shown.out, shown.err


def test_contexts_are_added_used_listed_and_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = lograft("context", "list", capsys=capsys)
    assert (code, "lograft context add" in out) == (0, True)
    result = lograft("context", "add", "here", "-b", "h1:1", capsys=capsys)
    assert result == (0, "Added context here: h1:1 (current).\n", "")
    extra = folder / "client.properties"
    extra.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.password=p\n")
    arguments = ("--command-config", str(extra), "--setting", "client.id=me")
    lograft("context", "add", "there", "-b", "h2:2", *arguments, capsys=capsys)
    assert stat.S_IMODE(contexts_path().stat().st_mode) == 0o600
    code, out, _ = lograft("context", "list", "--json", capsys=capsys)
    found = json.loads(out)
    assert found["current"] == "here"
    assert found["contexts"]["there"]["sasl.password"] == "(hidden)"
    assert client_settings(None, None)["bootstrap.servers"] == "h1:1"
    lograft("context", "use", "there", capsys=capsys)
    settings = client_settings(None, None)
    assert (settings["bootstrap.servers"], settings["sasl.password"]) == ("h2:2", "p")
    code, out, _ = lograft("context", "list", capsys=capsys)
    assert out.splitlines()[2] == "*  there    h2:2"
    lograft("context", "remove", "there", capsys=capsys)
    assert client_settings(None, None) == {"bootstrap.servers": "localhost:9092"}


def test_precedence_of_bootstrap_servers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts_path().parent.mkdir()
    contexts_path().write_text(
        json.dumps({"current": "a", "contexts": {"a": {"bootstrap.servers": "a:1"}, "b": {}}})
    )
    file = folder / "f.properties"
    file.write_text("bootstrap.servers=f:1\nclient.id=x\n")
    assert client_settings(None, None)["bootstrap.servers"] == "a:1"
    monkeypatch.setenv("LOGRAFT_CONTEXT", "b")
    assert client_settings(None, None)["bootstrap.servers"] == "localhost:9092"
    monkeypatch.setenv("LOGRAFT_BOOTSTRAP_SERVERS", "e:1")
    assert client_settings(None, None)["bootstrap.servers"] == "e:1"
    assert client_settings(None, str(file))["bootstrap.servers"] == "f:1"
    assert client_settings("o:1", str(file)) == {"bootstrap.servers": "o:1", "client.id": "x"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("context", "use", "x"), "context x does not exist: `lograft context list` shows all"),
        (("context", "remove", "x"), "context x does not exist"),
        (("--context", "x", "topics", "list"), "context x does not exist"),
        (("context", "add", "x", "-b", "h"), "bootstrap.servers"),
    ],
)
def test_invalid_contexts_are_rejected(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = lograft(*arguments, capsys=capsys)
    assert code == 1
    assert message in err


def test_an_invalid_contexts_file_is_rejected() -> None:
    contexts_path().parent.mkdir()
    contexts_path().write_text("[]")
    with pytest.raises(InvalidInput, match="is not a valid contexts file: correct it"):
        client_settings(None, None)
