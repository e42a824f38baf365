"""The requests of a login, and what ends it."""

from lograft.model.errors import ErrorCode
from lograft.security.client_sasl import (
    ClientLogin,
    LoggedIn,
    LoginStep,
    Rejected,
    renewal_delay_ms,
)
from lograft.security.plain_client import PlainClientExchange
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lograft.wire.messages.sasl_handshake import SaslHandshakeResponse


def login(mechanism: str = "PLAIN") -> ClientLogin:
    return ClientLogin(mechanism, PlainClientExchange("alice", "c4n4ry"))


def rejected(step: LoginStep) -> Rejected:
    assert isinstance(step, Rejected), step
    assert "c4n4ry" not in repr(step)
    return step


def test_login_ends_with_the_lifetime_of_the_session() -> None:
    plain = login()
    assert plain.begin().mechanism == "PLAIN"
    step = plain.on_handshake(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    assert step == SaslAuthenticateRequest(auth_bytes=b"\0alice\0c4n4ry")
    response = SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=60_000)
    assert plain.on_response(response) == LoggedIn(60_000)


def test_a_mechanism_that_is_not_enabled_is_reported_with_those_that_are() -> None:
    response = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-256", "a\nb"]
    )
    step = rejected(login().on_handshake(response))
    assert "enabled mechanisms: SCRAM-SHA-256, a\\nb" in step.cause


def test_other_errors_are_named() -> None:
    response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    assert "ILLEGAL_SASL_STATE" in rejected(login().on_handshake(response)).cause


def test_the_message_of_the_server_is_escaped() -> None:
    plain = login()
    plain.on_handshake(SaslHandshakeResponse())
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    response = SaslAuthenticateResponse(error_code=code, error_message="no\n2026 ERROR forged")
    step = rejected(plain.on_response(response))
    assert step.cause == "no\\n2026 ERROR forged"
    assert step.code == code
    assert step.advice == "check the user name and the password"


def test_unknown_codes_are_reported_by_number() -> None:
    assert rejected(login().on_response(SaslAuthenticateResponse(error_code=999))).cause == (
        "error 999"
    )


def test_sessions_are_renewed_late_but_before_they_end() -> None:
    assert renewal_delay_ms(10_000, 0) == 8_500
    assert renewal_delay_ms(10_000, 1) == 9_500
