"""SASL authentication of a client's connection: sends the requests of a `ClientLogin`."""

from functools import partial
from typing import Final

from lograft.client.broker_connection import BrokerConnection
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import AuthenticationFailed, ConnectionFailed
from lograft.client.token_retrieval import TokenNotRetrieved
from lograft.model.seams import Runtime
from lograft.model.security_context import ContextFailed
from lograft.runtime.kerberos import initiate
from lograft.security.client_mechanisms import start_exchange
from lograft.security.client_sasl import (
    HANDSHAKE_VERSION_MIN,
    RENEWAL_INTERVAL_MS,
    ClientExchange,
    ClientLogin,
    LoggedIn,
    Rejected,
    renewal_delay_ms,
)
from lograft.security.gssapi_client import ADVICE as KERBEROS_ADVICE
from lograft.security.gssapi_client import GssapiClientExchange
from lograft.security.oauthbearer_client import OAuthBearerClientExchange
from lograft.security.scram import NONCE_BYTES
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lograft.wire.messages.sasl_handshake import SaslHandshakeResponse

_TOKEN_ADVICE: Final = "check sasl.oauthbearer.token.endpoint.url, the client's id and its secret"


async def authenticate(
    connection: BrokerConnection, settings: ClientSettings, runtime: Runtime
) -> None:
    """Authenticates a new connection, or renews its session (KIP-368): then no other request may
    be sent until this returns. Raises AuthenticationFailed, or OutcomeUnknown if the connection was
    lost, or ConnectionFailed if the identity provider did not respond."""
    try:
        exchange = await _start_exchange(connection, settings, runtime)
    except TokenNotRetrieved as error:
        if error.is_retriable:
            raise ConnectionFailed(connection.address, "authentication", str(error)) from None
        raise AuthenticationFailed(
            connection.address, settings.sasl_mechanism, str(error), _TOKEN_ADVICE
        ) from None
    except ContextFailed as error:
        raise AuthenticationFailed(
            connection.address, settings.sasl_mechanism, str(error), KERBEROS_ADVICE
        ) from None
    login = ClientLogin(settings.sasl_mechanism, exchange)
    outcome = await _log_in(connection, login, settings.request_timeout_ms)
    if isinstance(outcome, Rejected):
        raise AuthenticationFailed(
            connection.address, login.mechanism, outcome.cause, outcome.advice
        )
    now_ms = runtime.clock.mono_ms()
    connection.authenticated_ms = now_ms
    connection.expires_at_ms = None
    if outcome.lifetime_ms:
        delay_ms = renewal_delay_ms(outcome.lifetime_ms, runtime.randomness.uniform(0, 1))
        connection.expires_at_ms = now_ms + delay_ms


def can_renew(connection: BrokerConnection, now_ms: int) -> bool:
    """Whether the session of the connection can be renewed; otherwise a new connection is needed:
    servers ignore a renewal that follows another one too soon."""
    return (
        not connection.is_closed
        and connection.authenticated_ms is not None
        and now_ms - connection.authenticated_ms >= RENEWAL_INTERVAL_MS
    )


async def _start_exchange(
    connection: BrokerConnection, settings: ClientSettings, runtime: Runtime
) -> ClientExchange:
    if settings.sasl_mechanism == "GSSAPI":
        job = partial(initiate, settings.kerberos_login(), connection.address.host)
        context, token = await runtime.workers.run(job)
        return GssapiClientExchange(context, token)
    if settings.sasl_mechanism == "OAUTHBEARER":
        if settings.oauth_token is not None:
            return OAuthBearerClientExchange(await settings.oauth_token())
        retriever = settings.token_retriever
        assert retriever is not None, "ClientSettings.check"
        return OAuthBearerClientExchange(await retriever.token(runtime))
    nonce = runtime.randomness.bytes(NONCE_BYTES)
    return start_exchange(settings.sasl_mechanism, settings.sasl_credentials(), nonce=nonce)


async def _log_in(
    connection: BrokerConnection, login: ClientLogin, timeout_ms: int
) -> LoggedIn | Rejected:
    version = connection.version_of(SaslHandshakeResponse.KEY, at_least=HANDSHAKE_VERSION_MIN)
    step = login.on_handshake(
        await connection.request(
            login.begin(), SaslHandshakeResponse, timeout_ms=timeout_ms, version=version
        )
    )
    while isinstance(step, SaslAuthenticateRequest):
        step = login.on_response(
            await connection.request(step, SaslAuthenticateResponse, timeout_ms=timeout_ms)
        )
    return step
