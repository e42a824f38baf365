"""The SCRAM exchanges of RFC 5802 and RFC 7677, and everything that must fail."""

import base64
import functools
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.security.sasl import OTHER_AUTHORIZATION_ID, Challenge, Failure, Step, Success
from lograft.security.scram import ScramExchange
from lograft.security.scram_credentials import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    salt_password,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
PASSWORD = "pencil"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
#: The server's part of the nonce in RFC 7677; the exchange encodes random bytes with base64.
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


salted_password = functools.lru_cache(salt_password)


def credential(name: str = "user", mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return credential_of(
        name,
        mechanism,
        salted_password=salted_password(mechanism, PASSWORD, SALT, 4096),
        salt=SALT,
        iterations=4096,
    )


def exchange(
    mechanism: ScramMechanism = SHA_256, *names: str, nonce: bytes = b"n" * 24
) -> ScramExchange:
    known = {name: credential(name, mechanism) for name in names or ("user",)}
    first = known[min(known)]
    return ScramExchange(mechanism, known.get, lambda: first, nonce=nonce)


class Client:
    """Logs in; a test may change each of its messages."""

    def __init__(
        self,
        server: ScramExchange,
        *,
        mechanism: ScramMechanism = SHA_256,
        name: str = "user",
        password: str = PASSWORD,
        header: str = "n,,",
        extensions: str = "",
        nonce: str = "rOprNGfwEbeRWgbNEkqO",
    ) -> None:
        self.server = server
        self.mechanism = mechanism
        self.password = password
        self.header = header
        self.bare = f"n={name},r={nonce}{extensions}"
        self.challenge = ""

    def begin(self) -> Step:
        step = self.server.step((self.header + self.bare).encode())
        if isinstance(step, Challenge):
            self.challenge = step.message.decode()
        return step

    @property
    def server_first(self) -> dict[str, str]:
        return dict(part.partition("=")[::2] for part in self.challenge.split(","))

    def final(self, *, header: str | None = None, nonce: str | None = None) -> str:
        first = self.server_first
        binding = base64.b64encode((self.header if header is None else header).encode()).decode()
        without_proof = f"c={binding},r={first['r'] if nonce is None else nonce}"
        name = self.mechanism.hash_name
        salted = salted_password(
            self.mechanism, self.password, base64.b64decode(first["s"]), int(first["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", name)
        signed = f"{self.bare},{self.challenge},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        self.expected = b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        )
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}"

    def login(self) -> Step:
        step = self.begin()
        return self.server.step(self.final().encode()) if isinstance(step, Challenge) else step


def failure(step: Step) -> Failure:
    assert isinstance(step, Failure), step
    assert PASSWORD not in repr(step)
    return step


def test_the_example_of_rfc_7677() -> None:
    server = exchange()
    # The RFC's nonce is not base64.
    server._nonce = SERVER_NONCE
    assert server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == Success(message=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", user="user")


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_right_password_is_accepted(mechanism: ScramMechanism) -> None:
    client = Client(exchange(mechanism), mechanism=mechanism)
    step = client.login()
    assert step == Success(message=client.expected, user="user")


@pytest.mark.parametrize(
    ("sent", "name"), [("a=2Cb", "a,b"), ("a=3Db", "a=b"), ("a=3D2Cb", "a=2Cb"), ("é ü", "é ü")]
)
def test_names_are_unescaped(sent: str, name: str) -> None:
    step = Client(exchange(SHA_256, name), name=sent).login()
    assert isinstance(step, Success)
    assert step.user == name


@pytest.mark.parametrize("header", ["y,,", "n,a=user,"])
def test_clients_with_channel_binding_and_with_their_own_name_are_accepted(header: str) -> None:
    assert isinstance(Client(exchange(), header=header).login(), Success)


def test_unknown_extensions_are_ignored() -> None:
    assert isinstance(Client(exchange(), extensions=",x=1,tokenauth=false").login(), Success)


def test_a_wrong_password_fails() -> None:
    step = failure(Client(exchange(), password="pen").login())
    assert (step.reason, step.user, step.message) == ("wrong password", "user", None)


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"header": "p=tls-unique,,"}, "requires channel binding", None),
        ({"header": "n,a=other,"}, "the authorization id is not", OTHER_AUTHORIZATION_ID),
        ({"header": "n"}, "malformed", None),
        ({"header": "n,,m=x,"}, "unknown extension", None),
        ({"name": ""}, "malformed", None),
        ({"name": "a=b"}, "malformed", None),
        ({"name": "a\0b"}, "malformed", None),
        ({"nonce": ""}, "malformed", None),
        ({"nonce": "a b"}, "malformed", None),
        ({"extensions": ",x"}, "malformed", None),
        ({"extensions": ",x=" + "y" * 20_000}, "too long", None),
    ],
)
def test_first_messages_that_are_rejected(
    changes: dict[str, str], reason: str, message: str | None
) -> None:
    step = failure(Client(exchange(), **changes).begin())  # type: ignore[arg-type]
    assert reason in step.reason
    assert step.message == message


def test_a_final_message_with_another_nonce_is_rejected() -> None:
    """CVE-2024-56128: a server that does not compare it accepts replayed messages."""
    client = Client(exchange())
    client.begin()
    for nonce in (client.server_first["r"] + "x", "rOprNGfwEbeRWgbNEkqO", "x"):
        other = Client(exchange())
        other.begin()
        step = failure(other.server.step(other.final(nonce=nonce).encode()))
        assert step.reason == "the nonce is wrong"


def test_a_replayed_final_message_is_rejected() -> None:
    client = Client(exchange(nonce=b"1" * 24))
    client.begin()
    final = client.final().encode()
    assert isinstance(client.server.step(final), Success)
    again = Client(exchange(nonce=b"2" * 24))
    again.begin()
    assert failure(again.server.step(final)).reason == "the nonce is wrong"


def test_a_changed_channel_binding_is_rejected() -> None:
    client = Client(exchange())
    client.begin()
    step = failure(client.server.step(client.final(header="y,,").encode()))
    assert step.reason == "the channel binding has changed"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text.partition(",p=")[0],
        lambda text: text + "=",
        lambda text: text + ",x=1",
        lambda text: re.sub("p=.*", "p=AAAA", text),
        lambda text: re.sub("p=.*", "p=", text),
        lambda text: re.sub("p=.*", "p=*", text),
        lambda text: "r=x," + text,
    ],
)
def test_malformed_final_messages_are_rejected(change: "object") -> None:
    client = Client(exchange())
    client.begin()
    assert callable(change)
    assert (
        failure(client.server.step(change(client.final()).encode())).reason == "malformed message"
    )


def test_an_unknown_user_cannot_be_told_from_a_known_one() -> None:
    known, unknown = Client(exchange(), password="x"), Client(exchange(), name="eve", password="x")
    steps = [client.login() for client in (known, unknown)]
    assert failure(steps[0]).message == failure(steps[1]).message
    first, second = known.server_first, unknown.server_first
    assert first.keys() == second.keys()
    assert (first["i"], len(first["s"])) == (second["i"], len(second["s"]))
    assert failure(steps[1]).reason == "unknown user"


def test_the_salt_of_an_unknown_user_is_always_the_same() -> None:
    salts = []
    for name in ("eve", "eve", "mallory"):
        client = Client(exchange(), name=name)
        client.begin()
        salts.append(client.server_first["s"])
    assert salts[0] == salts[1] != salts[2]


def test_an_unknown_user_gets_a_challenge_without_any_stored_credential() -> None:
    server = ScramExchange(SHA_512, lambda name: None, lambda: None, nonce=b"x")
    client = Client(server, mechanism=SHA_512)
    assert failure(client.login()).reason == "unknown user"
    assert client.server_first["i"] == "4096"


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_messages_give_a_step(first: bytes, second: bytes) -> None:
    server = exchange()
    assert isinstance(server.step(first), Failure | Challenge)
    client = Client(exchange())
    client.begin()
    assert isinstance(client.server.step(second), Failure)


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_changed_bit_never_logs_in(position: int, change: int) -> None:
    client = Client(exchange())
    client.begin()
    final = bytearray(client.final().encode())
    final[position % len(final)] ^= change
    step = client.server.step(bytes(final))
    assert isinstance(step, Failure)


def test_an_unknown_user_never_logs_in() -> None:
    """Not even with a proof that matches the challenge."""
    client = Client(exchange(SHA_256, "other"))
    client.begin()
    client.server._credential = credential()
    client.challenge = client.server._sent = client.challenge.replace(
        client.server_first["s"], base64.b64encode(SALT).decode()
    )
    final = client.final()
    assert failure(client.server.step(final.encode())).reason == "unknown user"
