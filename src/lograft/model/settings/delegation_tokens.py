"""The settings of delegation tokens. They are the same on all brokers and controllers of a cluster,
since each node computes the secret of a token from its id."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig


class TokenSettings(NamedTuple):
    #: The key of the HMACs; UTF-8 of the setting.
    secret_key: bytes
    max_lifetime_ms: int
    #: How long a token is valid without being renewed.
    expiry_time_ms: int

    def __repr__(self) -> str:
        return "TokenSettings([hidden])"


def token_settings(config: "BrokerConfig") -> TokenSettings | None:
    """Returns None if delegation tokens are disabled, which is the default."""
    key = config.secret("delegation.token.secret.key")
    if not key:
        # The name before Kafka 4.
        key = config.secret("delegation.token.master.key")
    if not key:
        return None
    return TokenSettings(
        key.encode(),
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
    )
