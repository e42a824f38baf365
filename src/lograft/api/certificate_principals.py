"""The principals of clients that authenticate with a certificate (mutual TLS).

A client of an SSL listener with ssl.client.auth gets its principal from the subject of its
certificate, by the rules of ssl.principal.mapping.rules, when its TLS handshake is complete: before
its first request, which may already take a fast path. Without a certificate it stays
User:ANONYMOUS. On SASL_SSL listeners the principal is that of SASL, as in Kafka.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from lograft.api.security_log import SecurityLog
from lograft.model.errors import InvalidInput
from lograft.model.seams import Channel
from lograft.model.settings.broker import BrokerConfig
from lograft.security.distinguished_names import subject_of
from lograft.security.principal_rules import SETTING, PrincipalRules

if TYPE_CHECKING:
    from lograft.api.router import Session

MECHANISM: Final = "TLS"
#: OpenSSL reasons for handshake failures caused by the client's certificate.
CERTIFICATE_FAILURES: Final = frozenset(
    {"CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"}
)


class CertificateChannel(Channel, Protocol):
    """A TLS channel (`net/tls.py`)."""

    def peer_certificate(self) -> bytes | None:
        """Returns the certificate in DER; None without one."""

    def when_identified(self, callback: Callable[[Exception | None], None]) -> None: ...


class CertificatePrincipals:
    """Maps client certificates to principals. One instance per TLS listener."""

    def __init__(self, config: BrokerConfig, listener: str, security_log: SecurityLog) -> None:
        """Raises InvalidConfig."""
        self._listener = listener
        self._rules = PrincipalRules(config.text(SETTING, listener=listener) or "DEFAULT")
        self._security_log = security_log

    def identify(self, channel: CertificateChannel, session: "Session | None") -> None:
        """Sets the principal of the session after the handshake. `session` is None on SASL
        listeners, where only failures are logged."""

        def on_identified(error: Exception | None) -> None:
            if error is not None:
                self._log_failure(channel, error)
            elif session is not None:
                self._authenticate(channel, session)

        channel.when_identified(on_identified)

    def _authenticate(self, channel: CertificateChannel, session: "Session") -> None:
        certificate = channel.peer_certificate()
        if certificate is None:
            return
        subject = ""
        try:
            subject = subject_of(certificate)
            name = self._rules.name_of(subject)
            reason = f"no rule of {SETTING} applies" if name is None else ""
        except InvalidInput as error:
            name, reason = None, str(error)
        if name is None:
            self._write(channel, failed=True, reason=reason, subject=subject)
            channel.abort()
            return
        session.authenticate_as(f"User:{name}")
        self._write(channel, principal=f"User:{name}")

    def _log_failure(self, channel: CertificateChannel, error: Exception) -> None:
        if getattr(error, "reason", "") in CERTIFICATE_FAILURES:
            reason = getattr(error, "verify_message", "") or "the client sent no certificate"
            self._write(channel, failed=True, reason=reason)

    def _write(self, channel: Channel, *, failed: bool = False, **values: str) -> None:
        self._security_log.write(
            "login",
            channel.peer,
            failed=failed,
            **values,
            mechanism=MECHANISM,
            listener=self._listener,
        )
