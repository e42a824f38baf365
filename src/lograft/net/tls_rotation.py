"""The TLS transports of a node, whose certificates can be replaced while it runs.

A dynamic change of a listener's `ssl.*` settings, or the same value set again after its file was
replaced, makes the node read the stores again. Existing connections keep their certificate; new
connections, incoming and outgoing, use the new one. A change that would make the node unreachable
is rejected, by Kafka's rules, and the old certificate stays.
"""

import logging
import ssl
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from lograft.model.errors import InvalidConfig
from lograft.model.metrics import LISTENER, Counter, Sample
from lograft.model.seams import Transport
from lograft.model.settings.broker import LISTENER_PREFIX, BrokerConfig
from lograft.net.tls import TlsTransport
from lograft.net.tls_contexts import TlsParameters, client_context, server_context
from lograft.net.tls_settings import tls_parameters

HANDSHAKES: Final = Counter(
    "lograft_tls_handshakes_total", "TLS handshakes of clients and nodes that succeeded.", LISTENER
)
HANDSHAKES_FAILED: Final = Counter(
    "lograft_tls_handshakes_failed_total",
    "TLS handshakes of clients and nodes that failed, were not finished in time or ended early.",
    LISTENER,
)
#: A handshake in which both sides run here takes three or four rounds.
_TURNS_MAX: Final = 20

LOGGER: Final = logging.getLogger(__name__)


class _Contexts(NamedTuple):
    """Contexts of one listener; None for a side that the node does not use."""

    parameters: TlsParameters
    server: ssl.SSLContext | None
    client: ssl.SSLContext | None


class TlsTransports:
    """One transport for each TLS listener that the node opens or connects to."""

    def __init__(self, below: Transport, config: BrokerConfig) -> None:
        """Raises InvalidConfig for stores that cannot be used."""
        self._below = below
        self._opened = {
            contexts.name for contexts in config.listeners if contexts.security.uses_tls
        }
        self._connected = _connected_to(config)
        #: Opened, though `listeners` does not name them.
        self._fixed: set[str] = set()
        self._contexts: dict[str, _Contexts] = {}
        self._transports: dict[str, TlsTransport] = {}
        #: By listener: the reason why its last reload failed, so that it is logged once.
        self._failures: dict[str, str] = {}
        for listener in sorted(self._opened | self._connected):
            contexts = self._build(listener, tls_parameters(config, listener))
            self._check_peers(listener, config, None, contexts)
            self._contexts[listener] = contexts
            self._transports[listener] = TlsTransport(
                below, server=contexts.server, client=contexts.client
            )

    def transport(self, listener: str) -> TlsTransport:
        return self._transports[listener]

    def open(self, listener: str, config: BrokerConfig) -> TlsTransport:
        """Returns the transport for accepting connections, also for a listener that the node's file
        does not name. Raises InvalidConfig."""
        if listener not in self._opened:
            parameters = tls_parameters(config, listener)
            server = server_context(parameters)
            client = client_context(parameters) if listener in self._connected else None
            transport = self._transports.setdefault(listener, TlsTransport(self._below))
            transport.server, transport.client = server, client
            self._contexts[listener] = _Contexts(parameters, server, client)
            self._opened.add(listener)
        return self._transports[listener]

    def open_fixed(self, listener: str, config: BrokerConfig) -> TlsTransport:
        """Like `open`, for a listener that is not in `listeners` and stays open. Raises
        InvalidConfig."""
        self._fixed.add(listener)
        return self.open(listener, config)

    def check_new(self, listener: str, config: BrokerConfig) -> None:
        """Raises InvalidConfig if a closed listener could not be opened with these settings."""
        server_context(tls_parameters(config, listener))

    def check(self, config: BrokerConfig, named: Collection[str]) -> None:
        """Raises InvalidConfig if `reload` would reject the TLS settings of `config` that a request
        sets. Changes nothing. A damaged store of one listener does not prevent other changes."""
        for listener in self._used_listeners(config):
            prefix = f"{LISTENER_PREFIX}{listener.lower()}."
            prefixes = (f"{prefix}ssl.", f"{prefix}lograft.ssl.", "ssl.", "lograft.ssl.")
            if any(name.startswith(prefixes) for name in named):
                self._build_changed(listener, config)

    def collect_samples(self) -> Iterator[Sample]:
        for listener, transport in list(self._transports.items()):
            yield HANDSHAKES.sample(transport.handshakes, listener)
            yield HANDSHAKES_FAILED.sample(transport.handshakes_failed, listener)

    @property
    def failures(self) -> list[str]:
        """Returns why listeners still use their old TLS settings."""
        return [
            f"ssl.* of {reason}; it keeps its old TLS settings"
            for reason in self._failures.values()
        ]

    def reload(self, config: BrokerConfig, *, is_start: bool = False) -> None:
        """Reads the stores again and uses those that have changed. A listener whose new settings
        are rejected keeps its old ones. `is_start`: nothing has been served yet with the settings
        of the file, so the dynamic settings of earlier runs need not be compatible with them."""
        self._forget_closed(config)
        for listener, transport in self._transports.items():
            try:
                changed = self._build_changed(listener, config, is_start=is_start)
            except InvalidConfig as error:
                reason = str(error)
                if self._failures.get(listener) != reason:
                    self._failures[listener] = reason
                    LOGGER.error("%s; the listener keeps its old TLS settings", reason)
                continue
            self._failures.pop(listener, None)
            if changed is not None:
                self._contexts[listener] = changed
                transport.server, transport.client = changed.server, changed.client
                if not is_start:
                    LOGGER.info("listener %s uses new TLS settings for new connections", listener)

    def _build_changed(
        self, listener: str, config: BrokerConfig, *, is_start: bool = False
    ) -> _Contexts | None:
        """Returns None if nothing has changed. Raises InvalidConfig."""
        old, parameters = self._contexts[listener], tls_parameters(config, listener)
        if parameters == old.parameters:
            return None
        if not is_start:
            _check_compatible(listener, config, old.parameters, parameters)
        new = self._build(listener, parameters)
        self._check_peers(listener, config, None if is_start else old, new)
        return new

    def _used_listeners(self, config: BrokerConfig) -> list[str]:
        names = {endpoint.name for endpoint in config.listeners} | self._connected | self._fixed
        return [listener for listener in self._transports if listener in names]

    def _forget_closed(self, config: BrokerConfig) -> None:
        """Dynamic settings may remove a listener and later add it again with other stores."""
        for listener in set(self._transports) - set(self._used_listeners(config)):
            del self._transports[listener], self._contexts[listener]
            self._opened.discard(listener)
            self._failures.pop(listener, None)

    def _build(self, listener: str, parameters: TlsParameters) -> _Contexts:
        server = server_context(parameters) if listener in self._opened else None
        client = client_context(parameters) if listener in self._connected else None
        return _Contexts(parameters, server, client)

    def _check_peers(
        self, listener: str, config: BrokerConfig, old: _Contexts | None, new: _Contexts
    ) -> None:
        """Raises InvalidConfig if brokers with these contexts could not connect to each other.
        During a rolling update, some have the old contexts and some the new ones."""
        if listener != config.inter_broker_listener_name or new.server is None:
            return
        client = _peer_context(new.parameters)
        pairs = [(new.server, client)]
        if old is not None and old.server is not None:
            pairs += [(old.server, client), (new.server, _peer_context(old.parameters))]
        for server_side, client_side in pairs:
            _check_handshake(new.parameters.where, server_side, client_side)


def _connected_to(config: BrokerConfig) -> set[str]:
    """Returns the TLS listeners to which the node connects on other nodes."""
    names = (config.controller_listener_names[0], config.inter_broker_listener_name)
    security = config.listener_security
    return {name for name in names if name in security and security[name].uses_tls}


def _check_compatible(
    listener: str, config: BrokerConfig, old: TlsParameters, new: TlsParameters
) -> None:
    """Raises InvalidConfig if the new stores are not compatible: stores can be replaced, but not
    added or removed, and the new certificate needs the names of the old one, unless the node's file
    allows other names."""

    def allows(setting: str) -> bool:
        return config.value(setting, listener=listener) is True

    where = new.where
    if old.key_store is None and new.key_store is not None:
        raise InvalidConfig(f"{where}a key store cannot be added without a restart")
    if old.key_store is not None and new.key_store is None:
        raise InvalidConfig(f"{where}the key store cannot be removed without a restart")
    if old.trust_store is None and new.trust_store is not None:
        raise InvalidConfig(f"{where}a trust store cannot be added without a restart")
    if old.key_store is None or new.key_store is None or old.key_store == new.key_store:
        return
    old_names = _names_of(old.where, old.key_store.source, old.key_store.chain[0])
    new_names = _names_of(where, new.key_store.source, new.key_store.chain[0])
    if not allows("ssl.allow.dn.changes") and old_names[0].lower() != new_names[0].lower():
        raise InvalidConfig(
            f"{where}the distinguished name of the new certificate, {new_names[0]}, differs from"
            f" that of the old one, {old_names[0]}: use a certificate with the old name, or set"
            " ssl.allow.dn.changes=true in the node's file and restart it"
        )
    missing = sorted(old_names[1] - new_names[1])
    if not allows("ssl.allow.san.changes") and missing:
        raise InvalidConfig(
            f"{where}the new certificate lacks subject alternative names of the old one,"
            f" {', '.join(missing)}: use a certificate with all the old names, or set"
            " ssl.allow.san.changes=true in the node's file and restart it"
        )


def _names_of(where: str, source: str, der: bytes) -> tuple[str, set[str]]:
    """Returns the distinguished name and the subject alternative names of a certificate."""
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = certificate.subject.rfc4514_string()
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return subject, set()
    except ValueError as error:
        raise InvalidConfig(f"{where}{source} contains an invalid certificate: {error}") from None
    return subject, {f"{type(name).__name__}:{name.value}" for name in extension.value}


def _peer_context(parameters: TlsParameters) -> ssl.SSLContext:
    """Returns a client context for handshakes in memory, in which neither side has a host name."""
    return client_context(replace(parameters, endpoint_identification=""))


def _check_handshake(where: str, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raises InvalidConfig if two sides with these contexts could not connect."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    connecting = client.wrap_bio(to_client, to_server)
    unfinished = [connecting, accepting]
    try:
        for _turn in range(_TURNS_MAX):
            for side in list(unfinished):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                unfinished.remove(side)
            if not unfinished:
                # In TLS 1.3 the server checks the client's certificate after its own handshake.
                _expect_no_data(connecting)
                return
    except ssl.SSLError as error:
        raise InvalidConfig(
            f"{where}brokers could not connect to each other, because a certificate is not trusted"
            f" or the two sides have no TLS version or cipher suite in common ({error})"
        ) from None
    raise InvalidConfig(f"{where}a TLS handshake with the new settings does not complete")


def _expect_no_data(side: ssl.SSLObject) -> None:
    try:
        side.read(1)
    except ssl.SSLWantReadError:
        pass
