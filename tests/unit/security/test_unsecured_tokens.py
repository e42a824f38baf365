import pytest

from lograft.model.settings.oauthbearer import UnsecuredTokens
from lograft.security.json_web_tokens import InvalidToken
from lograft.security.oauthbearer import AcceptedToken, RejectedToken
from lograft.security.unsecured_tokens import check_unsecured_token
from tests.support.identity_provider import part, token

RULES = UnsecuredTokens(
    subject_claim="sub",
    scope_claim="scope",
    required_scopes=frozenset({"a"}),
    clock_skew_ms=1_000,
)


def unsecured(**claims: object) -> str:
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'exp': 50, 'scope': 'a', **claims})}."


def check(text: str) -> AcceptedToken | RejectedToken:
    return check_unsecured_token(text, RULES, now_ms=40_000)


def test_an_unsecured_token() -> None:
    assert check(unsecured()) == AcceptedToken("alice", 50_000)
    assert check(unsecured(scope=["a", "b"], exp=39.5)) == AcceptedToken("alice", 39_500)


def test_a_missing_scope() -> None:
    rejected = check(unsecured(scope="b"))
    assert isinstance(rejected, RejectedToken)
    assert (rejected.status, rejected.scope) == ("insufficient_scope", "a")


@pytest.mark.parametrize(
    "text",
    [
        unsecured(exp=38),
        unsecured(sub=""),
        unsecured() + "AA",
        unsecured()[:-1],
        token({"sub": "alice", "exp": 50, "scope": "a"}),
        f"{part({'alg': 'RS256'})}.{part({'sub': 'alice', 'exp': 50})}.",
        f"{part(b'{')}.{part({'sub': 'alice', 'exp': 50})}.",
        "",
        unsecured(x="x" * 40_000),
    ],
)
def test_tokens_that_are_rejected(text: str) -> None:
    with pytest.raises(InvalidToken):
        check(text)
