"""The settings of an admin client."""

from dataclasses import dataclass
from typing import ClassVar, Final

from lograft.client.client_settings import ClientSettings
from lograft.client.settings import at_least, between, setting
from lograft.model.errors import InvalidConfig
from lograft.model.listeners import parse_address
from lograft.model.seams import Address

_API_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The validated settings of an admin client, with Kafka's defaults.

    settings = AdminSettings.read({"bootstrap.servers": "localhost:9092"})
    assert settings.default_api_timeout_ms == 60_000
    """

    bootstrap_servers: tuple[str, ...] = setting(())
    #: Controllers to use instead of brokers; works while no broker is online.
    bootstrap_controllers: tuple[str, ...] = setting(())
    connections_max_idle_ms: int = setting(300_000)
    enable_metrics_push: bool = setting(False)
    default_api_timeout_ms: int = setting(_API_TIMEOUT_MS, at_least(0))
    retries: int = setting(2_147_483_647, between(0, 2_147_483_647))

    kind: ClassVar[str] = "admin-client"

    def check(self) -> None:
        super().check()
        if self.bootstrap_servers and self.bootstrap_controllers:
            raise InvalidConfig(
                "bootstrap.servers and bootstrap.controllers are mutually exclusive: set only one"
            )
        if self.default_api_timeout_ms < self.request_timeout_ms and not self._keeps_default:
            raise InvalidConfig(
                f"default.api.timeout.ms is {self.default_api_timeout_ms}, but must be at least"
                f" request.timeout.ms ({self.request_timeout_ms})"
            )

    @property
    def _keeps_default(self) -> bool:
        return self.default_api_timeout_ms == _API_TIMEOUT_MS

    @property
    def call_timeout_ms(self) -> int:
        """The limit of one call including its retries."""
        return max(self.default_api_timeout_ms, self.request_timeout_ms)

    @property
    def uses_controllers(self) -> bool:
        return bool(self.bootstrap_controllers)

    def bootstrap_addresses(self) -> list[Address]:
        if self.bootstrap_controllers:
            return [
                parse_address("bootstrap.controllers", address)
                for address in self.bootstrap_controllers
            ]
        return super().bootstrap_addresses()
