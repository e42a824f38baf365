"""The settings of a consumer and the rules between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from lograft.client.client_settings import ClientSettings
from lograft.client.consuming.interceptors import ConsumerInterceptor
from lograft.client.consuming.reset_policy import ResetPolicy, find_policy_error
from lograft.client.serializers import Deserializer
from lograft.client.settings import UnsupportedSetting, at_least, not_empty, one_of, setting
from lograft.model.errors import InvalidConfig

#: Names of the assignors and their classes in Kafka, which has no `consistent`.
ASSIGNORS: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
    "consistent": None,
}
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_NOT_A_SHARE: Final = "it applies to share groups, which this consumer does not support"


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """The validated settings of a consumer, with Kafka's defaults.

    settings = ConsumerSettings.read({"bootstrap.servers": "localhost:9092"})
    assert settings.auto_offset_reset == "latest"
    """

    allow_auto_create_topics: bool = setting(True)
    auto_commit_interval_ms: int = setting(5_000, at_least(0))
    auto_offset_reset: str = setting("latest", find_policy_error)
    check_crcs: bool = setting(True)
    client_rack: str = setting("")
    default_api_timeout_ms: int = setting(60_000, at_least(0))
    #: None: true if group.id is set.
    enable_auto_commit: bool | None = setting(None)
    exclude_internal_topics: bool = setting(True)
    fetch_max_bytes: int = setting(52_428_800, at_least(0))
    fetch_max_wait_ms: int = setting(500, at_least(0))
    fetch_min_bytes: int = setting(1, at_least(0))
    group_id: str | None = setting(None)
    group_instance_id: str | None = setting(None, not_empty)
    group_protocol: str = setting("classic")
    group_remote_assignor: str | None = setting(None)
    heartbeat_interval_ms: int | None = setting(None)
    interceptor_classes: tuple[ConsumerInterceptor, ...] = setting(())
    isolation_level: str = setting("read_uncommitted", one_of("read_committed", "read_uncommitted"))
    key_deserializer: Deserializer | None = setting(None)
    value_deserializer: Deserializer | None = setting(None)
    max_partition_fetch_bytes: int = setting(1_048_576, at_least(0))
    max_poll_interval_ms: int = setting(300_000, at_least(1))
    max_poll_records: int = setting(500, at_least(1))
    #: None: range and cooperative-sticky, so that a group can move to cooperative rebalancing.
    partition_assignment_strategy: tuple[str, ...] | None = setting(None)
    receive_buffer_bytes: int = setting(65_536, at_least(-1))
    session_timeout_ms: int | None = setting(None)

    kind: ClassVar[str] = "consumer"
    unsupported: ClassVar[Mapping[str, UnsupportedSetting]] = {
        **ClientSettings.unsupported,
        "internal.throw.on.fetch.stable.offset.unsupported": UnsupportedSetting(
            "false", "it is for Kafka Streams; only stable offsets are fetched in any case"
        ),
        "share.acknowledgement.mode": UnsupportedSetting("implicit", _NOT_A_SHARE),
        "share.acquire.mode": UnsupportedSetting("BATCH_OPTIMIZED", _NOT_A_SHARE),
    }

    def check(self) -> None:
        super().check()
        if self.group_id == "":
            raise InvalidConfig("group.id is empty: set a group id, or omit it")
        if self.enable_auto_commit and self.group_id is None:
            raise InvalidConfig("enable.auto.commit is true, but group.id is not set")
        if self.group_protocol.lower() not in ("classic", "consumer"):
            raise InvalidConfig(
                f"group.protocol is {self.group_protocol!r}, but must be classic or consumer"
            )
        if self.uses_consumer_protocol:
            self._check_server_side_settings()
        elif self.group_remote_assignor is not None:
            raise InvalidConfig(
                "group.remote.assignor selects an assignor of the broker and requires"
                " group.protocol=consumer"
            )
        self.assignors()
        if self.heartbeat_ms >= self.session_ms:
            raise InvalidConfig(
                f"heartbeat.interval.ms ({self.heartbeat_ms}) must be less than session.timeout.ms"
                f" ({self.session_ms})"
            )

    def _check_server_side_settings(self) -> None:
        for name in (
            "heartbeat_interval_ms",
            "session_timeout_ms",
            "partition_assignment_strategy",
        ):
            if getattr(self, name) is not None:
                raise InvalidConfig(
                    f"{name.replace('_', '.')} cannot be set with group.protocol=consumer: the"
                    " group coordinator determines it"
                )

    def assignors(self) -> tuple[str, ...]:
        """Returns the names of the assignors in order of preference."""
        if self.partition_assignment_strategy is None:
            return ("range", "cooperative-sticky")
        by_class = {f"{_PACKAGE}{kind}": name for name, kind in ASSIGNORS.items() if kind}
        names = tuple(by_class.get(name, name) for name in self.partition_assignment_strategy)
        unknown = [name for name in names if name not in ASSIGNORS]
        if unknown or not names or len(set(names)) < len(names):
            raise InvalidConfig(
                f"partition.assignment.strategy is {','.join(names)!r}, but must be a list of"
                f" {', '.join(ASSIGNORS)}, without duplicates"
            )
        return names

    @property
    def auto_commits(self) -> bool:
        if self.enable_auto_commit is None:
            return self.group_id is not None
        return self.enable_auto_commit

    @property
    def reset_policy(self) -> ResetPolicy:
        return ResetPolicy.parse(self.auto_offset_reset)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the group protocol is that of KIP-848, in which the coordinator assigns."""
        return self.group_protocol.lower() == "consumer"

    @property
    def is_read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def heartbeat_ms(self) -> int:
        return 3_000 if self.heartbeat_interval_ms is None else self.heartbeat_interval_ms

    @property
    def session_ms(self) -> int:
        return 45_000 if self.session_timeout_ms is None else self.session_timeout_ms
