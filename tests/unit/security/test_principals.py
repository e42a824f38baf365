import pytest

from lograft.model.errors import InvalidInput
from lograft.security.principals import ForwardedPrincipal, decode_principal, encode_principal


@pytest.mark.parametrize("principal", ["User:ANONYMOUS", "User:", "Role:a:b", "User:CN=x,O=ü"])
def test_principals_round_trip(principal: str) -> None:
    for with_token in (False, True):
        data = encode_principal(principal, with_token=with_token)
        assert decode_principal(data) == ForwardedPrincipal(principal, with_token)


def test_bytes_match_kafka() -> None:
    """As DefaultKafkaPrincipalBuilder.serialize writes User:alice."""
    assert encode_principal("User:alice") == b"\0\0\5User\6alice\0\0"
    assert encode_principal("User:alice", with_token=True) == b"\0\0\5User\6alice\1\0"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\1\5User\6alice\0\0", b"\0\0\1\1\0\0"])
def test_invalid_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_principal(data)
