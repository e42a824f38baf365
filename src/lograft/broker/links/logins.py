"""Logins of this node to SASL listeners of other nodes.

The mechanism, the user and the password are read from the settings for each login, so a dynamic
change applies to the next connection and to the next renewal of a session. After a rejected login,
requests to that address fail immediately until a back-off is over: the other node delays its
rejections, and retrying a wrong password does not help.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from lograft.broker.errors import PeerRejectedLogin
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address, Runtime
from lograft.model.security_context import ContextFailed, SecurityContext
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.kerberos import KerberosLogin, kerberos_login, service_name
from lograft.model.settings.sasl import (
    JAAS_CONFIG,
    jaas_entry,
    login_mechanism,
    mechanism_setting,
)
from lograft.security.client_mechanisms import jaas_credentials, start_exchange
from lograft.security.client_sasl import (
    ClientExchange,
    ClientLogin,
    LoggedIn,
    Rejected,
    renewal_delay_ms,
)
from lograft.security.gssapi_client import GssapiClientExchange
from lograft.security.scram import NONCE_BYTES

LOGGER: Final = logging.getLogger(__name__)

#: Returns the context of a login at a host, and its first token. A worker's job, which may raise
#: ContextFailed and InvalidConfig.
InitiateKerberos = Callable[[KerberosLogin, str], tuple[SecurityContext, bytes]]

BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 1_000
#: Minimum time between two log lines about the same address.
LOG_INTERVAL_MS: Final = 30_000
#: Nodes may change their addresses; the oldest failures are forgotten.
FAILURES_MAX: Final = 1_000


class _Failures(NamedTuple):
    """Rejected logins at one address, without a success since."""

    attempts: int
    retry_at_ms: int
    logged_ms: int
    reason: str


class NodeLogins:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        *,
        initiate_kerberos: InitiateKerberos | None = None,
    ) -> None:
        """`config` returns the current configuration of the node. `initiate_kerberos` is needed for
        GSSAPI."""
        self._initiate_kerberos = initiate_kerberos
        self._runtime = runtime
        self._config = config
        self._failures: dict[tuple[str, Address], _Failures] = {}

    async def start(self, listener: str, address: Address) -> ClientLogin | None:
        """Begins a login; None if the listener does not use SASL. Raises PeerRejectedLogin if the
        back-off is not over, or if the settings have no credentials for this listener."""
        config, listener = self._config(), listener.upper()
        security = config.listener_security.get(listener)
        if security is None or not security.uses_sasl:
            return None
        failures = self._failures.get((listener, address))
        if failures is not None and self._runtime.clock.mono_ms() < failures.retry_at_ms:
            raise PeerRejectedLogin(address, failures.reason)
        mechanism = login_mechanism(config, listener)
        try:
            if mechanism == "GSSAPI":
                exchange = await self._start_gssapi(config, listener, address)
            else:
                exchange = self._start_exchange(config, listener, mechanism)
        except (InvalidConfig, ContextFailed) as error:
            raise self._reject(listener, address, str(error)) from None
        return ClientLogin(mechanism, exchange)

    def _start_exchange(
        self, config: BrokerConfig, listener: str, mechanism: str
    ) -> ClientExchange:
        setting = mechanism_setting(mechanism, JAAS_CONFIG)
        text = config.listener_text(setting, listener=listener) or ""
        credentials = jaas_credentials(text, mechanism, setting=setting)
        if credentials is None:
            raise InvalidConfig(f"{setting} of listener {listener} has no user and password")
        nonce = self._runtime.randomness.bytes(NONCE_BYTES)
        return start_exchange(mechanism, credentials, nonce=nonce)

    async def _start_gssapi(
        self, config: BrokerConfig, listener: str, address: Address
    ) -> ClientExchange:
        assert self._initiate_kerberos is not None, "GSSAPI needs it"
        entry = jaas_entry(config, listener, "GSSAPI")
        login = kerberos_login(entry, service_name(config, listener))
        job = partial(self._initiate_kerberos, login, address.host)
        context, token = await self._runtime.workers.run(job)
        return GssapiClientExchange(context, token)

    def complete(
        self, listener: str, address: Address, login: ClientLogin, outcome: LoggedIn | Rejected
    ) -> int | None:
        """Returns when the session has to be renewed, by the monotonic clock; None if it does not
        end. Raises PeerRejectedLogin."""
        listener = listener.upper()
        if isinstance(outcome, Rejected):
            reason = f"{login.mechanism} login at listener {listener} failed: {outcome.cause}"
            raise self._reject(listener, address, reason)
        if self._failures.pop((listener, address), None) is not None:
            LOGGER.info("%s: %s login at listener %s succeeded", address, login.mechanism, listener)
        if not outcome.lifetime_ms:
            return None
        delay_ms = renewal_delay_ms(outcome.lifetime_ms, self._runtime.randomness.uniform(0, 1))
        return self._runtime.clock.mono_ms() + delay_ms

    def _reject(self, listener: str, address: Address, reason: str) -> PeerRejectedLogin:
        now_ms = self._runtime.clock.mono_ms()
        old = self._failures.pop((listener, address), None)
        attempts = 1 if old is None else old.attempts + 1
        logged_ms = now_ms if old is None else old.logged_ms
        if old is None or now_ms - old.logged_ms >= LOG_INTERVAL_MS:
            logged_ms = now_ms
            LOGGER.warning(
                "%s: %s; retrying (check the user and the password in sasl.jaas.config of this"
                " listener on both nodes)",
                address,
                reason,
            )
        backoff_ms = min(BACKOFF_MS_MIN << min(attempts - 1, 10), BACKOFF_MS_MAX)
        failures = _Failures(attempts, now_ms + backoff_ms, logged_ms, reason)
        self._failures[listener, address] = failures
        if len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        return PeerRejectedLogin(address, reason)
