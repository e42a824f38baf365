"""`lograft users`, and the users of `kafka-configs`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lograft.cli.kafka.configs import run as kafka_configs
from lograft.cli.passwords import read_password
from lograft.client import AuthenticationFailed
from lograft.client.blocking import Admin
from lograft.model.errors import InvalidInput
from lograft.testing import Cluster
from tests.unit.cli.test_commands import Run, lograft  # noqa: F401


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(security="scram", users=[]) as cluster:
        yield cluster


@pytest.fixture
def login(cluster: Cluster, tmp_path: Path) -> str:
    """A file with the settings of the administrator."""
    path = tmp_path / "admin.properties"
    settings = cluster.client_settings()
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def can_log_in(cluster: Cluster, user: str, password: str, mechanism: str) -> bool:
    settings = cluster.client_settings() | {
        "sasl.username": user,
        "sasl.password": password,
        "sasl.mechanism": mechanism,
    }
    try:
        with Admin(settings) as admin:
            admin.connect()
    except AuthenticationFailed:
        return False
    return True


def test_users_are_added_listed_and_removed(
    cluster: Cluster,
    lograft: Run,  # noqa: F811
    login: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "lograft.security")
    options = ("--command-config", login)
    added = lograft(
        "users", "add", "alice", "--password-file", "-", *options, text="c4n4ry\nmore\n"
    )
    assert (added.code, added.out) == (0, "Set the password of user alice for SCRAM-SHA-512.\n")
    assert can_log_in(cluster, "alice", "c4n4ry", "SCRAM-SHA-512")
    assert not can_log_in(cluster, "alice", "more", "SCRAM-SHA-512")
    listed = json.loads(lograft("users", "list", "--json", *options).out)
    assert listed["alice"] == {"SCRAM-SHA-512": 4096}
    assert "alice" in lograft("users", "list", *options).out
    removed = lograft("users", "remove", "alice", *options)
    assert removed.out == "Removed the password of user alice for SCRAM-SHA-512.\n"
    assert not can_log_in(cluster, "alice", "c4n4ry", "SCRAM-SHA-512")
    again = lograft("users", "remove", "alice", *options)
    assert again.code == 1
    assert "user alice does not exist" in again.err
    changes = [line for line in caplog.messages if line.startswith("event=user-change")]
    assert [line.partition(" listener=")[0] for line in changes] == [
        "event=user-change outcome=success principal=User:admin user=alice set=SCRAM-SHA-512",
        "event=user-change outcome=success principal=User:admin user=alice removed=SCRAM-SHA-512",
    ]
    assert all(line.endswith(" client=127.0.0.1") for line in changes)
    assert "c4n4ry" not in caplog.text


def test_invalid_users_are_rejected_with_one_sentence(lograft: Run, login: str) -> None:  # noqa: F811
    def add(*arguments: str, text: str = "secret\n") -> str:
        output = lograft("users", "add", "bob", "--command-config", login, *arguments, text=text)
        assert output.code != 0
        assert "Traceback" not in output.err
        return output.err

    assert "there is no terminal" in add()
    assert "cannot read the password from /no/such" in add("--password-file", "/no/such")
    assert "must be a password" in add("--password-file", "-", text="\n")
    assert "4096 to 16384" in add("--password-file", "-", "--iterations", "1000000000")
    assert "'MD5' is not one of SCRAM" in add("--password-file", "-", "--mechanism", "MD5")


def test_password_is_the_first_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"secret \r\nsecond")
    assert read_password(str(path), "") == "secret "
    path.write_bytes(b"\xff\n")
    with pytest.raises(InvalidInput, match="it is not UTF-8"):
        read_password(str(path), "")


def test_kafka_configs_manages_users(
    cluster: Cluster, login: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def configs(*words: str) -> tuple[int, str]:
        where = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", login)
        code = kafka_configs([*where, "--entity-type", "users", *words])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    frank = ("--entity-name", "frank")
    value = "SCRAM-SHA-256=[iterations=8192,password=c4n4ry],SCRAM-SHA-512=[password=c4n4ry]"
    assert configs(*frank, "--alter", "--add-config", value) == (
        0,
        "Completed updating config for user frank.\n",
    )
    code, text = configs(*frank, "--describe")
    assert code == 0
    assert text == (
        "SCRAM credential configs for user-principal 'frank' are"
        " SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    assert "'frank'" in configs("--describe")[1]
    assert configs(*frank, "--alter", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")[0] == 0
    assert configs(*frank, "--describe") == (0, "")
    for wrong in ("SCRAM-SHA-256=c4n4ry", "SCRAM-SHA-256=[passwort=c4n4ry]", "x=c4n4ry"):
        code, text = configs(*frank, "--alter", "--add-config", wrong)
        assert code == 1
        assert "c4n4ry" not in text
