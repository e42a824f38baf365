"""SASL of one listener: its mechanisms and credentials, and the connections that are not
authenticated yet.

Follows the dynamic settings of the listener and the users in the metadata image: a change applies
to the next login. Connections that have not authenticated are limited in number and in time.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from lograft.api.oauthbearer_keys import KeySetSource, ReadKeySet
from lograft.api.security_log import SecurityLog
from lograft.metadata.delegation_tokens import is_expired
from lograft.model.errors import InvalidConfig
from lograft.model.security_context import ServerKey
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.delegation_tokens import token_settings
from lograft.model.settings.jaas import JaasEntry
from lograft.model.settings.kerberos import KerberosSettings, kerberos_settings
from lograft.model.settings.keys import Secret
from lograft.model.settings.oauthbearer import OAuthBearerSettings, oauthbearer_settings
from lograft.model.settings.sasl import enabled_mechanisms, jaas_entry, max_reauth_ms
from lograft.security import oauthbearer, plain, scram
from lograft.security.delegation_tokens import token_credential
from lograft.security.gssapi import GssapiExchange
from lograft.security.oauthbearer import AcceptedToken, OAuthBearerExchange, RejectedToken
from lograft.security.plain import PlainExchange
from lograft.security.sasl import Exchange, RejectingExchange
from lograft.security.scram import NONCE_BYTES, ScramExchange, TokenLogin
from lograft.security.scram_credentials import ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from lograft.broker.shared_services import SharedServices

LOGGER: Final = logging.getLogger(__name__)
#: The longest message that a mechanism accepts. Tickets of Kerberos have no limit of their own.
_MESSAGE_BYTES_MAX: Final = {
    "PLAIN": plain.MESSAGE_BYTES_MAX,
    "SCRAM-SHA-256": scram.MESSAGE_BYTES_MAX,
    "SCRAM-SHA-512": scram.MESSAGE_BYTES_MAX,
    "OAUTHBEARER": oauthbearer.MESSAGE_BYTES_MAX,
}
#: Maximum size of the frame around the message.
_HEADER_BYTES_MAX: Final = 1 << 10


class PendingConnection(Protocol):
    """A connection that has not authenticated yet."""

    def drop(self, reason: str) -> None: ...


class ListenerAuthentication:
    def __init__(
        self,
        shared: "SharedServices",
        listener: str,
        security_log: SecurityLog,
        *,
        read_key_set: ReadKeySet | None = None,
        load_server_key: Callable[[str, str], ServerKey] | None = None,
    ) -> None:
        """`read_key_set` is needed if OAUTHBEARER is enabled. `load_server_key` loads the Kerberos
        key of a principal from a keytab, and raises InvalidConfig; it is needed if GSSAPI is
        enabled."""
        self.shared = shared
        self.listener = listener
        self.security_log = security_log
        #: In the order of their arrival.
        self._pending: dict[PendingConnection, None] = {}
        self._config: BrokerConfig | None = None
        self._mechanisms: tuple[str, ...] = ()
        self._entries: dict[str, JaasEntry | None] = {}
        self._lifetimes_ms: dict[str, int] = {}
        #: By mechanism: the offset of the image that was searched, and the credential.
        self._templates: dict[ScramMechanism, tuple[int, ScramCredential | None]] = {}
        self._read_key_set = read_key_set
        self._oauthbearer: OAuthBearerSettings | None = None
        self._key_source: KeySetSource | None = None
        self._load_server_key = load_server_key
        self._kerberos: KerberosSettings | None = None
        self._server_key: ServerKey | None = None
        self._follow_config()

    async def load_keys(self) -> None:
        """Reads the Kerberos key of this node, and the keys of OAUTHBEARER if they are in a file.
        Raises InvalidConfig. Keys served by a provider are fetched in the background, since it may
        not be reachable yet."""
        if self._kerberos is not None:
            self._server_key = self._load_key(self._kerberos)
        source = self._key_source
        if source is not None and source.is_file:
            await source.load()

    def check_change(self, config: BrokerConfig) -> None:
        """Raises InvalidConfig if a changed Kerberos key cannot be loaded."""
        if "GSSAPI" in enabled_mechanisms(config, self.listener):
            entry = jaas_entry(config, self.listener, "GSSAPI")
            settings = kerberos_settings(config, self.listener, entry)
            if settings != self._kerberos:
                self._load_key(settings)

    def close(self) -> None:
        if self._key_source is not None:
            self._key_source.close()

    # ── connections ──────────────────────────────────────────────────────────────────────────

    def add_pending(self, connection: PendingConnection) -> None:
        """Drops the oldest connections beyond the limit: clients authenticate within a few round
        trips, so the oldest one is the least likely to do so."""
        self._pending[connection] = None
        limit = self.shared.config.lograft_unauthenticated_connections_max
        while len(self._pending) > limit:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.drop("too many connections have not authenticated")

    def remove_pending(self, connection: PendingConnection) -> None:
        self._pending.pop(connection, None)

    # ── settings ─────────────────────────────────────────────────────────────────────────────

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The enabled mechanisms, in order."""
        self._follow_config()
        return self._mechanisms

    @property
    def plain_users(self) -> Mapping[str, Secret]:
        """The passwords of the users of PLAIN; empty if it is not enabled."""
        self._follow_config()
        entry = self._entries.get("PLAIN")
        return {} if entry is None else entry.users

    @property
    def token_bytes_max(self) -> int:
        size = self.shared.config.value("sasl.server.max.receive.size", listener=self.listener)
        assert isinstance(size, int)
        return size

    def message_bytes_max(self, mechanism: str) -> int:
        """Returns the size of a frame with a message of the mechanism: not more than it needs,
        because unauthenticated clients may send incomplete ones."""
        size_bytes = _MESSAGE_BYTES_MAX.get(mechanism, self.token_bytes_max) + _HEADER_BYTES_MAX
        return min(self.token_bytes_max, size_bytes)

    def max_reauth_ms(self, mechanism: str) -> int:
        self._follow_config()
        return self._lifetimes_ms[mechanism]

    def _follow_config(self) -> None:
        config = self.shared.config
        if config is self._config:
            return
        self._config = config
        try:
            mechanisms = enabled_mechanisms(config, self.listener)
            entries = {name: jaas_entry(config, self.listener, name) for name in mechanisms}
            lifetimes_ms = {name: max_reauth_ms(config, self.listener, name) for name in mechanisms}
            oauthbearer = kerberos = None
            if "GSSAPI" in mechanisms:
                kerberos = kerberos_settings(config, self.listener, entries["GSSAPI"])
            if "OAUTHBEARER" in mechanisms:
                oauthbearer = oauthbearer_settings(config, self.listener)
        except InvalidConfig as error:
            # Checked before they were applied; without settings all logins are rejected.
            LOGGER.error("listener %s accepts no logins: %s", self.listener, error)
            mechanisms, entries, lifetimes_ms, oauthbearer, kerberos = (), {}, {}, None, None
        self._mechanisms, self._entries = mechanisms, entries
        self._lifetimes_ms = lifetimes_ms
        self._follow_oauthbearer(oauthbearer)
        self._follow_kerberos(kerberos)

    def _follow_kerberos(self, settings: KerberosSettings | None) -> None:
        if settings != self._kerberos:
            self._kerberos, self._server_key = settings, None

    def _load_key(self, settings: KerberosSettings) -> ServerKey:
        assert self._load_server_key is not None, "GSSAPI needs a key"
        return self._load_server_key(settings.principal, settings.keytab_path)

    def _follow_oauthbearer(self, settings: OAuthBearerSettings | None) -> None:
        if settings == self._oauthbearer:
            return
        self._oauthbearer = settings
        if self._key_source is not None:
            self._key_source.close()
            self._key_source = None
        if settings is not None and settings.key_set_url is not None:
            assert self._read_key_set is not None, "OAUTHBEARER needs keys"
            self._key_source = KeySetSource(self.shared.runtime, settings, self._read_key_set)
            self._key_source.start()

    # ── exchanges ────────────────────────────────────────────────────────────────────────────

    def start(self, mechanism: str) -> Exchange:
        """Begins a login with an enabled mechanism."""
        entry = self._entries[mechanism]
        if mechanism == "PLAIN":
            return PlainExchange({} if entry is None else entry.users)
        if mechanism == "OAUTHBEARER":
            return OAuthBearerExchange(self.check_token)
        if mechanism == "GSSAPI":
            return self._start_gssapi()
        kind = ScramMechanism[mechanism.replace("-", "_")]
        return ScramExchange(
            kind,
            lambda user: self.find_credential(kind, user),
            lambda: self.find_template(kind),
            nonce=self.shared.runtime.randomness.bytes(NONCE_BYTES),
            find_token=lambda token_id: self._find_token(kind, token_id),
        )

    def _start_gssapi(self) -> Exchange:
        settings = self._kerberos
        assert settings is not None, "it is enabled"
        if self._server_key is None:
            try:
                self._server_key = self._load_key(settings)
            except InvalidConfig as error:
                return RejectingExchange(str(error))
        key = self._server_key
        return GssapiExchange(key.accept(), settings.rules, default_realm=key.default_realm)

    def check_token(self, token: str) -> AcceptedToken | RejectedToken:
        settings, source = self._oauthbearer, self._key_source
        if settings is None:
            return RejectedToken("OAUTHBEARER has been disabled")
        now_ms = self.shared.clock.wall_ms()
        # Imported here because most nodes do not need `cryptography`.
        from lograft.security.json_web_tokens import (
            InvalidToken,
            TokenRules,
            UnknownKey,
            verify_token,
        )
        from lograft.security.unsecured_tokens import check_unsecured_token

        try:
            if settings.unsecured is not None:
                return check_unsecured_token(token, settings.unsecured, now_ms=now_ms)
            if source is None or source.keys is None:
                return RejectedToken("the keys of the identity provider have not been read yet")
            rules = TokenRules(
                issuer=settings.issuer,
                audiences=settings.audiences,
                subject_claim=settings.subject_claim,
                scope_claim=settings.scope_claim,
                clock_skew_ms=settings.clock_skew_ms,
            )
            verified = verify_token(token, source.keys, rules, now_ms=now_ms)
        except UnknownKey as error:
            assert source is not None, "only verification raises it"
            source.expedite()
            return RejectedToken(str(error))
        except InvalidToken as error:
            return RejectedToken(str(error))
        return AcceptedToken(verified.subject, verified.expires_at_ms)

    def find_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        record = self.shared.image.scram.get((mechanism, user))
        if record is None:
            return None
        return ScramCredential(
            name=user,
            mechanism=mechanism,
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )

    def _find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """Returns a delegation token with which a client may log in now."""
        settings = token_settings(self.shared.config)
        token = self.shared.image.delegation_tokens.get(token_id)
        if settings is None or token is None or is_expired(token, self.shared.clock.wall_ms()):
            return None
        kind, _, owner = token.owner.partition(":")
        if kind != "User" or not owner:
            # The login would result in the user of this name.
            return None
        credential = token_credential(settings.secret_key, token_id, mechanism)
        return TokenLogin(credential, owner, min(token.expiration_timestamp, token.max_timestamp))

    def find_template(self, mechanism: ScramMechanism) -> ScramCredential | None:
        """Returns the credential of the user whose name is first: it is the same on all nodes."""
        image = self.shared.image
        offset, template = self._templates.get(mechanism, (-1, None))
        if offset != image.offset:
            users = (user for kind, user in image.scram if kind == mechanism)
            first = min(users, default=None)
            template = None if first is None else self.find_credential(mechanism, first)
            self._templates[mechanism] = (image.offset, template)
        return template
