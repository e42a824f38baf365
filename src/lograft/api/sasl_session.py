"""The frame handler of a connection to a SASL listener: authenticates the client, then passes its
requests on.

Before it has authenticated, a client may send ApiVersions, SaslHandshake and its SASL messages, in
this order, and nothing else. After SaslHandshake version 0 the messages are frames without a
header; after version 1 they are SaslAuthenticate requests. A failure is answered after
connection.failed.authentication.delay.ms, and the connection is closed.

    state         | expects                       | then
    VERSIONS      | ApiVersions or SaslHandshake  | HANDSHAKE after ApiVersions, MESSAGES
    HANDSHAKE     | SaslHandshake                 | MESSAGES
    MESSAGES      | the messages of the mechanism | COMPLETE or FAILED
    COMPLETE      | requests; SaslHandshake if the session expires: MESSAGES
    FAILED        | nothing

Sessions expire after connections.max.reauth.ms or with the credential. A client may authenticate
again on the same connection (KIP-368), with the same mechanism and principal; otherwise its next
request after the expiry closes the connection.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from lograft.api.authentication import ListenerAuthentication
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply, Reply
from lograft.model.printable_text import printable
from lograft.model.seams import Address, Channel, Part
from lograft.security.sasl import Challenge, Exchange, Failure, RejectingExchange, Success
from lograft.wire.apis import API_VERSIONS, API_VERSIONS_KEY, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import RequestHeader, frame_response, read_request_header
from lograft.wire.message import Message
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from lograft.api.router import Session

#: ApiVersions and SaslHandshake need less.
FIRST_FRAME_BYTES_MAX: Final = 16 << 10
SASL_HANDSHAKE_KEY: Final = SaslHandshakeRequest.KEY
SASL_AUTHENTICATE_KEY: Final = SaslAuthenticateRequest.KEY
#: As in Kafka, a client may not authenticate again more often.
REAUTHENTICATION_INTERVAL_MS: Final = 1_000


class State(Enum):
    VERSIONS = "versions"
    HANDSHAKE = "handshake"
    MESSAGES = "messages"
    COMPLETE = "complete"
    FAILED = "failed"


class SaslSession:
    def __init__(
        self, session: "Session", channel: Channel, authentication: ListenerAuthentication
    ) -> None:
        self._session = session
        self._channel = channel
        self._authentication = authentication
        self._clock = authentication.shared.clock
        self._state = State.VERSIONS
        self._mechanism = ""
        self._exchange: Exchange | None = None
        #: The messages of the mechanism are SaslAuthenticate requests.
        self._has_headers = False
        #: By the monotonic clock; None: the session does not expire.
        self._expires_at_ms: int | None = None
        self._principal: str | None = None
        self._reauthenticated_ms: int | None = None
        #: A failure of which the client knows, and that is not in the log yet.
        self._reported: Failure | None = None
        self.frame_bytes_max = min(FIRST_FRAME_BYTES_MAX, authentication.token_bytes_max)
        authentication.add_pending(self)
        timeout_ms = authentication.shared.config.lograft_authentication_timeout_ms
        self._deadline: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            timeout_ms / 1000, self.drop, f"not authenticated within {timeout_ms} ms"
        )

    # ── FrameHandler ─────────────────────────────────────────────────────────────────────────

    @property
    def received_ns(self) -> int:
        return self._session.received_ns

    @received_ns.setter
    def received_ns(self, received_ns: int) -> None:
        self._session.received_ns = received_ns

    def handle_frame(self, frame: memoryview) -> Reply:
        if self._state is State.COMPLETE:
            if self._expires_at_ms is None:
                return self._session.handle_frame(frame)
            return self._handle_in_session(frame, self._expires_at_ms)
        if self._state is State.MESSAGES:
            return self._handle_message(frame)
        if self._state is State.FAILED:
            raise CloseConnection("a request after the authentication failed")
        return self._handle_before_messages(frame)

    def on_frames_handled(self) -> None:
        self._session.on_frames_handled()

    def on_closed(self) -> None:
        self._stop_waiting()
        if self._reported is not None:
            self._log(self._reported)
        self._session.on_closed()

    def drop(self, reason: str) -> None:
        """Closes the connection, which has not authenticated."""
        self._state = State.FAILED
        self._stop_waiting()
        self._log(Failure(reason=reason))
        self._channel.abort()

    def _stop_waiting(self) -> None:
        self._authentication.remove_pending(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ── before authentication ────────────────────────────────────────────────────────────────

    def _handle_before_messages(self, frame: memoryview) -> Reply:
        header = read_request_header(frame)
        if header.api_key == API_VERSIONS_KEY and self._state is State.VERSIONS:
            spec = API_VERSIONS[API_VERSIONS_KEY]
            if spec.min_version <= header.api_version <= spec.max_version:
                self._state = State.HANDSHAKE
            return self._session.handle_frame(frame)
        if header.api_key == SASL_HANDSHAKE_KEY:
            return self._handle_handshake(header, frame)
        raise self._close(f"API {header.api_key} before authentication")

    def _handle_handshake(self, header: RequestHeader, frame: memoryview) -> Reply:
        self._check_version(header)
        request = read_all(SaslHandshakeRequest, header.api_version, frame, header.body_position)
        mechanisms = list(self._authentication.mechanisms)
        if request.mechanism not in mechanisms:
            failure = Failure(reason=f"mechanism {printable(request.mechanism)} is not enabled")
            return self._fail(
                failure,
                _encode(
                    header,
                    SaslHandshakeResponse(
                        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
                    ),
                ),
            )
        if self._mechanism not in ("", request.mechanism):
            # Reported in the response to the first message, as in Kafka.
            self._exchange = RejectingExchange(
                f"the mechanism has changed from {self._mechanism} to {request.mechanism}"
            )
        else:
            self._mechanism = request.mechanism
            self._exchange = self._authentication.start(request.mechanism)
        self._has_headers = header.api_version >= 1
        self._state = State.MESSAGES
        if self._principal is None:
            self.frame_bytes_max = self._authentication.message_bytes_max(request.mechanism)
        return EncodedResponse(_encode(header, SaslHandshakeResponse(mechanisms=mechanisms)))

    def _handle_message(self, frame: memoryview) -> Reply:
        if len(frame) > self._authentication.token_bytes_max:
            raise self._close("a SASL message above sasl.server.max.receive.size")
        if not self._has_headers:
            return self._take_step(bytes(frame), None)
        header = read_request_header(frame)
        if header.api_key == SASL_HANDSHAKE_KEY:
            self._check_version(header)
            response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            return self._fail(Failure(reason="a second SaslHandshake"), _encode(header, response))
        if header.api_key != SASL_AUTHENTICATE_KEY:
            raise self._close(f"API {header.api_key} during authentication")
        self._check_version(header)
        request = read_all(SaslAuthenticateRequest, header.api_version, frame, header.body_position)
        return self._take_step(request.auth_bytes, header)

    def _take_step(self, message: bytes, header: RequestHeader | None) -> Reply:
        assert self._exchange is not None
        step = self._exchange.step(message)
        if isinstance(step, Success) and self._principal not in (None, f"User:{step.user}"):
            step = Failure(reason="the principal has changed", user=step.user)
        match step:
            case Challenge(data, failure):
                self._reported = failure
                return _message_reply(header, data, lifetime_ms=0)
            case Success():
                return _message_reply(header, step.message, lifetime_ms=self._complete(step))
            case Failure():
                if header is None:
                    return self._fail(step, ())
                response = SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                    error_message=step.message or self._general_message(),
                )
                return self._fail(step, _encode(header, response))

    def _general_message(self) -> str:
        stage = "authentication" if self._principal is None else "re-authentication"
        return (
            f"Authentication failed during {stage} due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )

    # ── outcomes ─────────────────────────────────────────────────────────────────────────────

    def _complete(self, success: Success) -> int:
        """Returns the lifetime of the session; 0 if it does not expire."""
        authentication = self._authentication
        self._exchange = None
        self._state = State.COMPLETE
        self._stop_waiting()
        is_first = self._principal is None
        self._principal = f"User:{success.user}"
        self._session.authenticate_as(self._principal, with_token=bool(success.token_id))
        self.frame_bytes_max = self._session.frame_bytes_max
        limits = []
        if reauth_ms := authentication.max_reauth_ms(self._mechanism):
            limits.append(reauth_ms)
        if success.expires_at_ms is not None:
            limits.append(max(success.expires_at_ms - self._clock.wall_ms(), 0))
        self._expires_at_ms = self._clock.mono_ms() + min(limits) if limits else None
        authentication.security_log.write(
            "login" if is_first else "reauthentication",
            self._peer,
            principal=self._principal,
            mechanism=self._mechanism,
            token=success.token_id,
            listener=authentication.listener,
        )
        return min(limits) if limits else 0

    def _fail(self, failure: Failure, parts: Sequence[Part]) -> Reply:
        """Sends the response after the configured delay, and closes the connection."""
        self._state = State.FAILED
        self._stop_waiting()
        self._log(failure)
        delay_ms = self._authentication.shared.config.connection_failed_authentication_delay_ms
        return PendingReply(_delay(EncodedResponse(parts, closes=True), delay_ms))

    def _close(self, reason: str) -> CloseConnection:
        self._state = State.FAILED
        self._log(Failure(reason=reason))
        return CloseConnection(reason)

    def _log(self, failure: Failure) -> None:
        self._reported = None
        authentication = self._authentication
        authentication.security_log.write(
            "login" if self._principal is None else "reauthentication",
            self._peer,
            failed=True,
            reason=failure.reason,
            user=failure.user,
            principal=self._principal or "",
            mechanism=self._mechanism,
            listener=authentication.listener,
        )

    @property
    def _peer(self) -> Address:
        return self._channel.peer

    def _check_version(self, header: RequestHeader) -> None:
        spec = API_VERSIONS[header.api_key]
        if not spec.min_version <= header.api_version <= spec.max_version:
            raise self._close(f"{spec.name} version {header.api_version} is not supported")

    # ── sessions that expire ─────────────────────────────────────────────────────────────────

    def _handle_in_session(self, frame: memoryview, expires_at_ms: int) -> Reply:
        now_ms = self._clock.mono_ms()
        if len(frame) >= 2 and int.from_bytes(frame[:2], "big") == SASL_HANDSHAKE_KEY:
            last_ms = self._reauthenticated_ms
            if last_ms is None or now_ms - last_ms >= REAUTHENTICATION_INTERVAL_MS:
                self._reauthenticated_ms = now_ms
                return self._handle_handshake(read_request_header(frame), frame)
        elif now_ms >= expires_at_ms:
            raise self._close("the session has expired")
        return self._session.handle_frame(frame)


async def _delay(response: EncodedResponse, delay_ms: int) -> EncodedResponse:
    if delay_ms > 0:
        await asyncio.sleep(delay_ms / 1000)
    return response


def _message_reply(header: RequestHeader | None, message: bytes, *, lifetime_ms: int) -> Reply:
    if header is None:
        return len(message).to_bytes(4, "big") + message
    response = SaslAuthenticateResponse(
        error_message=None, auth_bytes=message, session_lifetime_ms=lifetime_ms
    )
    return EncodedResponse(_encode(header, response))


def _encode(header: RequestHeader, response: Message) -> Sequence[Part]:
    return frame_response(
        response,
        header.api_version,
        correlation_id=header.correlation_id,
        header_version=response_header_version(header.api_key, header.api_version),
    )
