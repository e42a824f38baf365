"""Kerberos security contexts of MIT's library, through the package gssapi.

The package is an optional extra, since it needs a compiler: pip install 'lograft[kerberos]'. Each
call takes well below a millisecond, except for `initiate`.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from lograft.model.errors import InvalidConfig
from lograft.model.security_context import ContextFailed
from lograft.model.settings.kerberos import KerberosLogin

if TYPE_CHECKING:
    import gssapi

MISSING: Final = (
    "GSSAPI requires the package gssapi and the Kerberos libraries: pip install 'lograft[kerberos]'"
)


def is_installed() -> bool:
    return find_spec("gssapi") is not None


def load_library() -> Any:
    """Raises InvalidConfig if the package is not installed."""
    try:
        import gssapi
    except ImportError as error:
        raise InvalidConfig(f"{MISSING} ({error})") from None
    return gssapi


class GssContext:
    """A `SecurityContext` of the library."""

    __slots__ = ("_context", "_error")

    def __init__(self, context: "gssapi.SecurityContext") -> None:
        self._context = context
        self._error: type[Exception] = load_library().exceptions.GSSError

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        try:
            name = (
                self._context.target_name
                if self._context.locally_initiated
                else self._context.initiator_name
            )
        except self._error as error:
            raise ContextFailed(_describe(error)) from None
        return str(name)

    def step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token or None) or b""
        except self._error as error:
            raise ContextFailed(_describe(error)) from None

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._error as error:
            raise ContextFailed(_describe(error)) from None

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except self._error as error:
            raise ContextFailed(_describe(error)) from None


class Acceptor:
    """The identity of a server, from a keytab: accepts the contexts of clients."""

    __slots__ = ("_credentials", "default_realm")

    def __init__(self, principal: str, keytab_path: str) -> None:
        """Raises InvalidConfig if the keytab has no key of the principal."""
        library = load_library()
        try:
            name = library.Name(principal, library.NameType.kerberos_principal)
            self._credentials = library.Credentials(
                name=name, usage="accept", store={"keytab": keytab_path}
            )
            #: The realm of names without one, from krb5.conf.
            self.default_realm = find_default_realm()
        except library.exceptions.GSSError as error:
            raise InvalidConfig(
                f"Kerberos cannot use the key of {principal} in keytab {keytab_path}:"
                f" {_describe(error)}"
            ) from None

    def accept(self) -> GssContext:
        library = load_library()
        return GssContext(library.SecurityContext(creds=self._credentials, usage="accept"))


def initiate(login: KerberosLogin, host: str) -> tuple[GssContext, bytes]:
    """Returns the context of a client for the servers of a host, and its first token. Run this in
    a worker: the library may ask a key distribution center for tickets. Raises ContextFailed."""
    library = load_library()
    store = {}
    if login.keytab_path is not None:
        # The tickets are kept in the process, so that no file cache with tickets of another
        # principal is used.
        store = {
            "client_keytab": login.keytab_path,
            "ccache": f"MEMORY:lograft-{login.principal}",
        }
    elif login.cache_path is not None:
        store = {"ccache": f"FILE:{login.cache_path}"}
    try:
        name = None
        if login.principal is not None:
            name = library.Name(login.principal, library.NameType.kerberos_principal)
        credentials = library.Credentials(name=name, usage="initiate", store=store or None)
        target = library.Name(f"{login.service}@{host}", library.NameType.hostbased_service)
        flags = library.RequirementFlag.mutual_authentication | library.RequirementFlag.integrity
        context = GssContext(
            library.SecurityContext(name=target, creds=credentials, usage="initiate", flags=flags)
        )
    except library.exceptions.GSSError as error:
        raise ContextFailed(_describe(error)) from None
    return context, context.step(b"")


def find_default_realm() -> str:
    library = load_library()
    name = library.Name("user", library.NameType.user)
    canonical = str(name.canonicalize(library.MechType.kerberos))
    return canonical.rpartition("@")[2]


def _describe(error: Exception) -> str:
    """The library's own words, without the structure of its message."""
    return " ".join(str(error).split())
