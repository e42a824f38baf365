import pytest

from lograft.model.settings.keys import Secret
from lograft.security.plain import PlainExchange
from lograft.security.sasl import OTHER_AUTHORIZATION_ID, Failure, Success

INVALID = "Authentication failed: Invalid username or password"


def login(message: bytes) -> object:
    return PlainExchange(
        {"alice": Secret("wonder,land"), "élise": Secret("ß"), "empty": Secret("")}
    ).step(message)


@pytest.mark.parametrize("message", [b"\0alice\0wonder,land", b"alice\0alice\0wonder,land"])
def test_the_right_password_is_accepted(message: bytes) -> None:
    assert login(message) == Success(user="alice")


def test_names_and_passwords_are_utf_8() -> None:
    assert login("\0élise\0ß".encode()) == Success(user="élise")


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        (b"\0alice\0wonder", "wrong password", INVALID),
        (b"\0alice\0wonder,land ", "wrong password", INVALID),
        (b"\0bob\0wonder,land", "unknown user", INVALID),
        (b"\0\0wonder,land", "no user name", "Authentication failed: username not specified"),
        (b"\0alice\0", "no password", "Authentication failed: password not specified"),
        # An empty password is a configuration error; it lets nobody in.
        (b"\0empty\0", "no password", "Authentication failed: password not specified"),
        (b"admin\0alice\0wonder,land", "the authorization id is not", OTHER_AUTHORIZATION_ID),
        (b"", "malformed", "expected 3 tokens, got 1"),
        (b"\0alice", "malformed", "expected 3 tokens, got 2"),
        (b"\0alice\0wonder,land\0", "malformed", "expected 3 tokens, got 4"),
    ],
)
def test_everything_else_is_rejected(message: bytes, reason: str, text: str) -> None:
    step = login(message)
    assert isinstance(step, Failure)
    assert reason in step.reason
    assert text in (step.message or "")
    assert "wonder" not in repr(step)


def test_bytes_that_are_not_text_are_rejected() -> None:
    assert login(b"\0alice\0\xff") == Failure(reason="malformed message")


def test_clients_cannot_tell_unknown_users_from_wrong_passwords() -> None:
    unknown, wrong = login(b"\0bob\0x"), login(b"\0alice\0x")
    assert isinstance(unknown, Failure)
    assert isinstance(wrong, Failure)
    assert unknown.message == wrong.message
