"""Authenticates and authorizes the clients of the HTTP listener (`http/access.py`).

Basic authentication takes users of the mechanisms PLAIN and SCRAM, Bearer those of OAUTHBEARER, as
far as the mechanisms are enabled for the listener HTTP. A client needs Describe on the cluster.

Invariants:

* a password is verified by a worker, of a few at a time: the event loop is not delayed;
* a verified password is known without that computation until the credential of the user changes,
  and only as a digest with a secret of this process;
* failures are delayed, and a host with too many attempts is rejected without verification, unless
  its password is known;
* a failure takes the same time whether or not the user exists.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from lograft.api.authentication import ListenerAuthentication
from lograft.model.http_access import Refusal
from lograft.model.seams import Address
from lograft.security.authorization import (
    CLUSTER_DESCRIBE,
    CLUSTER_NAME,
    Authorizer,
    Need,
)
from lograft.security.oauthbearer import AcceptedToken
from lograft.security.plain import PlainExchange
from lograft.security.sasl import Success
from lograft.security.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    is_password_of,
)
from lograft.security.standard_authorizer import AuthorizerNotReady

#: Passwords and tokens that have been verified.
KNOWN_MAX: Final = 1_000
#: Attempts of one host in a period, without those that succeed.
ATTEMPTS_MAX: Final = 10
PERIOD_MS: Final = 10_000
#: Hosts whose attempts are counted; the least recently active ones are forgotten.
HOSTS_MAX: Final = 1_000
#: Passwords that are verified at the same time, and that may wait for it.
VERIFICATIONS_MAX: Final = 2
WAITING_MAX: Final = 64
_SECRET_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.\-]+")
#: In the order of preference.
_SCRAM: Final = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)


class _Attempts:
    __slots__ = ("began_ms", "count")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.count = 0


class _Failure(Exception):
    """The client has not authenticated. The reason is for the security log."""

    def __init__(self, reason: str, user: str = "", *, status: str = "") -> None:
        super().__init__(reason)
        self.user = user
        #: The error code of RFC 6750.
        self.status = status


class _Overloaded(Exception):
    """The client has to try again later."""


class ClusterAccess:
    """The `HttpAccess` of one node."""

    def __init__(
        self, authentication: ListenerAuthentication, authorizer: Authorizer | None
    ) -> None:
        self._authentication = authentication
        self._authorizer = authorizer
        shared = authentication.shared
        self._clock = shared.clock
        self._secret = shared.runtime.randomness.bytes(_SECRET_BYTES)
        self._unknown_salt = shared.runtime.randomness.bytes(SALT_BYTES)
        #: By the digest of user and password, or of the token. None: only its first use is logged.
        self._known: OrderedDict[bytes, ScramCredential | None] = OrderedDict()
        self._attempts: OrderedDict[str, _Attempts] = OrderedDict()
        self._verifications = asyncio.Semaphore(VERIFICATIONS_MAX)
        self._waiting = 0

    async def check(self, authorization: Sequence[bytes], peer: Address) -> Refusal | None:
        if not authorization:
            return self._challenge("Authentication is required.")
        try:
            principal = await self._authenticate(authorization, peer)
        except _Failure as failure:
            self._log_failure(failure, peer)
            config = self._authentication.shared.config
            await asyncio.sleep(config.connection_failed_authentication_delay_ms / 1000)
            return self._challenge("Authentication failed.", error=failure.status)
        except _Overloaded:
            return Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many failed logins: try again later.",
                retry_after_seconds=PERIOD_MS // 1000,
            )
        return self._authorize(principal, peer)

    # ── authentication ───────────────────────────────────────────────────────────────────────

    async def _authenticate(self, authorization: Sequence[bytes], peer: Address) -> str:
        """Returns the principal."""
        if len(authorization) != 1:
            raise _Failure("more than one Authorization header")
        scheme, _, credentials = authorization[0].decode("latin-1").partition(" ")
        credentials = credentials.strip()
        match scheme.lower():
            case "basic" if self._has_basic:
                user = await self._check_basic(credentials, peer)
            case "bearer" if self._has_bearer:
                user = self._check_bearer(credentials, peer)
            case _:
                raise _Failure("the authentication scheme is not enabled")
        return f"User:{user}"

    async def _check_basic(self, text: str, peer: Address) -> str:
        user, password = _parse_basic(text)
        digest = hmac.digest(self._secret, f"{user}\0{password}".encode(), "sha256")
        credential = self._find_credential(user)
        if credential is not None and self._known.get(digest) == credential:
            self._known.move_to_end(digest)
            return user
        attempts = self._count_attempt(peer.host)
        if self._is_password_of_plain_user(user, password):
            attempts.count -= 1
            self._remember(digest, None, user, "PLAIN", peer)
            return user
        if not self._scram_mechanisms:
            raise _Failure("unknown user or wrong password", user)
        is_right = await self._verify(credential or self._stand_in(), password)
        if credential is None:
            raise _Failure("unknown user", user)
        if not is_right:
            raise _Failure("wrong password", user)
        if self._find_credential(user) != credential:
            raise _Failure("the password has been changed", user)
        attempts.count -= 1
        self._remember(digest, credential, user, credential.mechanism.mechanism_name, peer)
        return user

    def _check_bearer(self, token: str, peer: Address) -> str:
        digest = hashlib.sha256(token.encode()).digest()
        attempts = None if digest in self._known else self._count_attempt(peer.host)
        if not _TOKEN.fullmatch(token):
            raise _Failure("the token is malformed", status="invalid_token")
        outcome = self._authentication.check_token(token)
        if not isinstance(outcome, AcceptedToken):
            self._known.pop(digest, None)
            raise _Failure(outcome.reason, outcome.user, status=outcome.status)
        if attempts is not None:
            attempts.count -= 1
        self._remember(digest, None, outcome.user, "OAUTHBEARER", peer)
        return outcome.user

    def _is_password_of_plain_user(self, user: str, password: str) -> bool:
        users = self._authentication.plain_users
        message = f"\0{user}\0{password}".encode()
        return isinstance(PlainExchange(users).step(message), Success)

    async def _verify(self, credential: ScramCredential, password: str) -> bool:
        if self._waiting >= WAITING_MAX:
            raise _Overloaded
        self._waiting += 1
        try:
            async with self._verifications:
                job = partial(is_password_of, credential, password)
                return await self._authentication.shared.runtime.workers.run(job)
        finally:
            self._waiting -= 1

    def _find_credential(self, user: str) -> ScramCredential | None:
        for mechanism in self._scram_mechanisms:
            credential = self._authentication.find_credential(mechanism, user)
            if credential is not None:
                return credential
        return None

    def _stand_in(self) -> ScramCredential:
        """Returns a credential for a user that does not exist, as expensive as those of users."""
        mechanism = self._scram_mechanisms[0]
        template = self._authentication.find_template(mechanism)
        return ScramCredential(
            name="",
            mechanism=mechanism,
            salt=self._unknown_salt,
            stored_key=bytes(mechanism.digest_size),
            server_key=b"",
            iterations=ITERATIONS_MIN if template is None else template.iterations,
        )

    def _count_attempt(self, host: str) -> _Attempts:
        """Raises _Overloaded if the host has made too many attempts."""
        now_ms = self._clock.mono_ms()
        attempts = self._attempts.get(host)
        if attempts is None or now_ms - attempts.began_ms >= PERIOD_MS:
            attempts = self._attempts[host] = _Attempts(now_ms)
            if len(self._attempts) > HOSTS_MAX:
                self._attempts.popitem(last=False)
        self._attempts.move_to_end(host)
        if attempts.count >= ATTEMPTS_MAX:
            raise _Overloaded
        attempts.count += 1
        return attempts

    def _remember(
        self,
        digest: bytes,
        credential: ScramCredential | None,
        user: str,
        mechanism: str,
        peer: Address,
    ) -> None:
        is_new = digest not in self._known
        self._known[digest] = credential
        self._known.move_to_end(digest)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        if is_new:
            self._authentication.security_log.write(
                "login",
                peer,
                principal=f"User:{user}",
                mechanism=mechanism,
                listener=self._authentication.listener,
            )

    def _log_failure(self, failure: _Failure, peer: Address) -> None:
        self._authentication.security_log.write(
            "login",
            peer,
            failed=True,
            reason=str(failure),
            user=failure.user,
            listener=self._authentication.listener,
        )

    # ── mechanisms ───────────────────────────────────────────────────────────────────────────

    @property
    def _scram_mechanisms(self) -> list[ScramMechanism]:
        enabled = self._authentication.mechanisms
        return [mechanism for mechanism in _SCRAM if mechanism.mechanism_name in enabled]

    @property
    def _has_basic(self) -> bool:
        return bool(self._scram_mechanisms) or "PLAIN" in self._authentication.mechanisms

    @property
    def _has_bearer(self) -> bool:
        return "OAUTHBEARER" in self._authentication.mechanisms

    def _challenge(self, message: str, *, error: str = "") -> Refusal:
        challenges = []
        if self._has_basic:
            challenges.append('Basic realm="lograft", charset="UTF-8"')
        if self._has_bearer:
            challenges.append('Bearer realm="lograft"' + (f', error="{error}"' if error else ""))
        return Refusal(HTTPStatus.UNAUTHORIZED, message, challenges)

    # ── authorization ────────────────────────────────────────────────────────────────────────

    def _authorize(self, principal: str, peer: Address) -> Refusal | None:
        authorizer = self._authorizer
        if authorizer is None:
            return None
        need = Need(*CLUSTER_DESCRIBE, CLUSTER_NAME)
        try:
            (is_allowed,) = authorizer.authorize(principal, peer.host, [need])
            if is_allowed:
                return None
            rule = authorizer.describe_rule(principal, peer.host, need)
        except AuthorizerNotReady:
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The node has not read the ACLs yet.",
                retry_after_seconds=1,
            )
        self._authentication.security_log.write(
            "authorization",
            peer,
            failed=True,
            principal=principal,
            operation=need.operation.name,
            resource=f"{need.resource_type.name}:{need.name}",
            rule=rule,
            listener=self._authentication.listener,
        )
        return Refusal(
            HTTPStatus.FORBIDDEN, "The user lacks the permission DESCRIBE on the cluster."
        )


def _parse_basic(text: str) -> tuple[str, str]:
    """Returns user and password."""
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _Failure("the Authorization header is malformed") from None
    if not user or not colon or not password or "\0" in user + password:
        raise _Failure("the Authorization header has no user or no password")
    return user, password
