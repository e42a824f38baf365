"""The settings of a producer, and the rules between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from lograft.client.client_settings import ClientSettings
from lograft.client.producing.interceptors import Interceptor
from lograft.client.producing.partitioner import Partitioner, PartitionFunction
from lograft.client.serializers import Serializer
from lograft.client.settings import (
    UnsupportedSetting,
    at_least,
    between,
    not_empty,
    one_of,
    setting,
)
from lograft.model.errors import InvalidConfig
from lograft.wire.compression import Codec

#: A broker keeps the last five batches of a producer in a partition to detect duplicates.
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


def _acks_as_text(value: Any) -> Any:
    """Accepts ints too, as other clients do."""
    return str(value) if type(value) is int else value


def _create_partitioner(value: Any) -> Any:
    """Instantiates a class without arguments, as Kafka does with a class name."""
    if not isinstance(value, type):
        return value
    try:
        return value()
    except TypeError as error:
        raise InvalidConfig(
            f"partitioner.class is the class {value.__name__}, which cannot be created without"
            f" arguments ({error}): pass an instance instead"
        ) from None


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The validated settings of a producer, with Kafka's defaults.

    settings = ProducerSettings.read({"bootstrap.servers": "localhost:9092"})
    assert settings.acks == "all"
    """

    acks: str = setting("all", one_of(*_ACKS), convert=_acks_as_text)
    batch_size: int = setting(16_384, at_least(0))
    buffer_memory: int = setting(33_554_432, at_least(0))
    compression_type: str = setting("none", one_of(*(codec.text for codec in Codec)))
    compression_gzip_level: int = setting(-1, between(-1, 9))
    compression_lz4_level: int = setting(9, between(1, 17))
    compression_zstd_level: int = setting(3, between(-131_072, 22))
    delivery_timeout_ms: int = setting(120_000, at_least(0))
    #: None: enabled if the other settings allow it.
    enable_idempotence: bool | None = setting(None)
    interceptor_classes: tuple[Interceptor, ...] = setting(())
    key_serializer: Serializer | None = setting(None)
    value_serializer: Serializer | None = setting(None)
    linger_ms: int = setting(5, at_least(0))
    max_block_ms: int = setting(60_000, at_least(0))
    max_in_flight_requests_per_connection: int = setting(5, at_least(1))
    max_request_size: int = setting(1_048_576, at_least(0))
    metadata_max_idle_ms: int = setting(300_000, at_least(5_000))
    partitioner_adaptive_partitioning_enable: bool = setting(True)
    partitioner_availability_timeout_ms: int = setting(0, at_least(0))
    partitioner_class: Partitioner | PartitionFunction | None = setting(
        None, convert=_create_partitioner
    )
    partitioner_ignore_keys: bool = setting(False)
    receive_buffer_bytes: int = setting(32_768, at_least(-1))
    retries: int = setting(2_147_483_647, between(0, 2_147_483_647))
    transaction_timeout_ms: int = setting(60_000)
    transactional_id: str | None = setting(None, not_empty)

    kind: ClassVar[str] = "producer"
    unsupported: ClassVar[Mapping[str, UnsupportedSetting]] = {
        **ClientSettings.unsupported,
        "transaction.two.phase.commit.enable": UnsupportedSetting(
            "false", "two-phase commit with an external coordinator is not supported yet"
        ),
    }

    def check(self) -> None:
        super().check()
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidConfig(
                f"delivery.timeout.ms is {self.delivery_timeout_ms}, but must be at least linger.ms"
                f" + request.timeout.ms ({self.linger_ms} + {self.request_timeout_ms})"
            )
        error = self._idempotence_error()
        if self.enable_idempotence and error:
            raise InvalidConfig(f"enable.idempotence is true, but {error}")
        if self.transactional_id is not None and not self.is_idempotent:
            reason = error or "enable.idempotence is false"
            raise InvalidConfig(f"transactional.id requires idempotence, but {reason}")

    def _idempotence_error(self) -> str | None:
        if self.required_acks != -1:
            return f"acks is {self.acks}: it must be all"
        if self.retries == 0:
            return "retries is 0"
        if self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT_MAX:
            return (
                "max.in.flight.requests.per.connection is"
                f" {self.max_in_flight_requests_per_connection}: it must be at most"
                f" {IDEMPOTENT_IN_FLIGHT_MAX}"
            )
        return None

    @property
    def is_idempotent(self) -> bool:
        if self.enable_idempotence is None:
            return self._idempotence_error() is None
        return self.enable_idempotence

    @property
    def required_acks(self) -> int:
        return _ACKS[self.acks]

    @property
    def codec(self) -> Codec:
        return Codec[self.compression_type.upper()]

    @property
    def compression_level(self) -> int | None:
        """Returns the level in the codec's scale, or None for its default."""
        levels = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.codec)
