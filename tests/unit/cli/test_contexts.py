"""Contexts: their file, and the precedence of the sources of bootstrap servers."""

import json
import stat
import sys
from pathlib import Path
from types import ModuleType

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
    extra.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=p\n"
    )
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


class Keyring(ModuleType):
    """In memory, with the functions of the package keyring."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.entries: dict[tuple[str, str], str] = {}
        self.locked = False

    def set_password(self, service: str, name: str, value: str) -> None:
        if self.locked:
            raise RuntimeError(f"cannot store {value}")
        self.entries[service, name] = value

    def get_password(self, service: str, name: str) -> str | None:
        return self.entries.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.entries[service, name]


def test_secrets_can_be_stored_in_the_keyring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    settings = (
        *("--setting", "security.protocol=SASL_SSL", "--setting", "sasl.mechanism=PLAIN"),
        *("--setting", "sasl.username=alice", "--setting", "sasl.password=c4n4ry"),
    )
    add = ("context", "add", "x", "-b", "h:1", *settings, "--keyring")
    code, _, err = lograft(*add, capsys=capsys)
    assert (code, err) == (0, "")
    assert keyring.entries == {("lograft", "x/sasl.password"): "c4n4ry"}
    assert "c4n4ry" not in contexts_path().read_text()
    assert client_settings(None, None)["sasl.password"] == "c4n4ry"
    # Listing and switching need no keyring.
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert lograft("context", "use", "x", capsys=capsys)[0] == 0
    assert lograft("context", "list", "--json", capsys=capsys)[0] == 0
    with pytest.raises(InvalidInput, match="keyring is not installed"):
        client_settings(None, None)
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    keyring.entries.clear()
    with pytest.raises(InvalidInput, match=r"no sasl\.password of context x: add the context"):
        client_settings(None, None)
    assert lograft("context", "remove", "x", capsys=capsys)[0] == 0
    keyring.locked = True
    code, _, err = lograft(*add, capsys=capsys)
    assert code == 1
    assert "the keyring cannot be used (RuntimeError)" in err
    assert "c4n4ry" not in err


def test_a_context_that_leaves_the_keyring_deletes_its_entries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    for options in (("--keyring",), ()):
        result = lograft(
            *("context", "add", "x", "-b", "h:1", "--setting", "ssl.key.password=c4n4ry"),
            *options,
            capsys=capsys,
        )
        assert result[0] == 0
    assert keyring.entries == {}
    assert client_settings(None, None)["ssl.key.password"] == "c4n4ry"
    assert stat.S_IMODE(contexts_path().stat().st_mode) == 0o600
