from lograft.broker.client_quotas import (
    CLIENTS,
    EVICTED,
    THROTTLE_SECONDS,
    THROTTLED,
    ClientQuotas,
)
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.model.metrics import value_of
from lograft.model.types import Epoch, Offset
from lograft.security.client_usage import CLIENTS_MAX
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from tests.unit.broker.bench import make_config


def quota(
    key: str, value: float, *, remove: bool = False, **entity: str | None
) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        key=key,
        value=value,
        remove=remove,
    )


def test_quotas_follow_the_image() -> None:
    metadata = ClusterMetadata(make_config(quota_window_num="3"))
    quotas = ClientQuotas(metadata)
    changes: list[bool] = []
    quotas.on_activity_changed.append(lambda: changes.append(quotas.is_active))
    records = [
        quota("producer_byte_rate", 100, user="alice"),
        quota("connection_creation_rate", 2, ip="::0001"),
    ]
    metadata.on_committed(Offset(1), Epoch(1), records)
    assert changes == [True]
    # Three windows of a second, of which two count at least.
    assert quotas.produce.record("alice", "", 300, 0) == 1_000
    quotas.produce.count_throttled(1_000)
    assert value_of(quotas, THROTTLED, "producer_byte_rate") == 1
    assert value_of(quotas, THROTTLE_SECONDS, "producer_byte_rate") == 1
    assert value_of(quotas, CLIENTS, "producer_byte_rate") == 1
    rates = quotas.connection_rates()
    # Of each role separately; throttled for at most one window.
    assert [rates.record("::1", 0) for _ in range(5)] == [0, 0, 0, 0, 500]
    assert quotas.connection_rates().record("::1", 0) == 0
    assert rates.record("10.0.0.1", 0) == 0
    removal = quota("producer_byte_rate", 0, user="alice", remove=True)
    metadata.on_committed(Offset(2), Epoch(1), [removal])
    assert changes == [True, False]
    assert quotas.produce.clients == 0


def test_clients_beyond_the_limit_are_forgotten() -> None:
    metadata = ClusterMetadata(make_config())
    quotas = ClientQuotas(metadata)
    # Of each client id separately.
    record = ClientQuotaRecord(
        entity=[EntityData(entity_type="client-id", entity_name=None)],
        key="producer_byte_rate",
        value=100,
    )
    metadata.on_committed(Offset(1), Epoch(1), [record])
    for number in range(CLIENTS_MAX + 3):
        quotas.produce.record("alice", f"c{number}", 1, 0)
    assert value_of(quotas, CLIENTS, "producer_byte_rate") == CLIENTS_MAX
    assert value_of(quotas, EVICTED, "producer_byte_rate") == 3
