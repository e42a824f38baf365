import logging
from typing import Any

import pytest

from lograft.metadata.types import QuotaEntity
from lograft.model.errors import ErrorCode
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

Entity = dict[str, str | None]
ALICE: Entity = {"user": "alice"}


def entry(entity: Entity, **values: float | None) -> AlterClientQuotasRequestEntryData:
    """None removes a quota."""
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )


async def alter(
    bench: Bench, *entries: AlterClientQuotasRequestEntryData, **options: Any
) -> list[tuple[ErrorCode, str | None]]:
    version = options.pop("version", 1)
    request = AlterClientQuotasRequest(entries=list(entries), **options)
    response = await bench.ask(request, version, AlterClientQuotasResponse)
    return [(ErrorCode(result.error_code), result.error_message) for result in response.entries]


@pytest.mark.parametrize("version", [0, 1])
@scenario(run)
async def test_quotas_are_set_changed_and_removed(bench: Bench, /, version: int) -> None:
    both: Entity = {"user": "alice", "client-id": None}
    results = await alter(
        bench,
        entry(ALICE, producer_byte_rate=1_000, request_percentage=12.5),
        entry(both, consumer_byte_rate=2_000),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=5),
        version=version,
    )
    assert results == [(ErrorCode.NONE, None)] * 3
    image = bench.broker.image
    assert image.client_quotas == {
        (QuotaEntity("user", "alice"),): {"producer_byte_rate": 1_000, "request_percentage": 12.5},
        (QuotaEntity("client-id", None), QuotaEntity("user", "alice")): {
            "consumer_byte_rate": 2_000
        },
        (QuotaEntity("ip", "10.0.0.1"),): {"connection_creation_rate": 5},
    }
    await alter(bench, entry(ALICE, producer_byte_rate=7, request_percentage=None))
    await alter(bench, entry(both, consumer_byte_rate=None, producer_byte_rate=None))
    assert image.client_quotas[(QuotaEntity("user", "alice"),)] == {"producer_byte_rate": 7}
    assert len(image.client_quotas) == 2


@scenario(run)
async def test_equal_values_and_validate_only_store_nothing(bench: Bench, /) -> None:
    await alter(bench, entry(ALICE, producer_byte_rate=1_000))
    before = len(bench.controller.log)
    assert await alter(bench, entry(ALICE, producer_byte_rate=1_000)) == [(ErrorCode.NONE, None)]
    valid, invalid = entry({"user": "b"}, producer_byte_rate=1), entry({"user": "c"}, x=1)
    results = await alter(bench, valid, invalid, validate_only=True)
    assert [code for code, _ in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(bench.controller.log) == before


REJECTED: list[tuple[Entity, dict[str, float], str]] = [
    ({}, {"producer_byte_rate": 1}, "Invalid empty client quota entity"),
    ({"": "a"}, {"producer_byte_rate": 1}, "Unhandled client quota entity type: "),
    ({"host": "a"}, {"producer_byte_rate": 1}, "Unhandled client quota entity type: host"),
    ({"user": ""}, {"producer_byte_rate": 1}, "Empty user not supported"),
    (
        {"user": "a", "ip": "10.0.0.1"},
        {"producer_byte_rate": 1},
        "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
    ),
    ({"ip": "not an ip"}, {"connection_creation_rate": 1}, "not an ip is not a valid IP address."),
    ({"ip": None}, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
    (
        ALICE,
        {"connection_creation_rate": 1},
        "Invalid configuration key connection_creation_rate",
    ),
    (ALICE, {"producer_byte_rate": 0}, "Quota producer_byte_rate must be greater than 0"),
    (ALICE, {"request_percentage": -1}, "Quota request_percentage must be greater than 0"),
    (ALICE, {"request_percentage": float("nan")}, "Quota request_percentage must be greater"),
    (ALICE, {"request_percentage": float("inf")}, "Quota request_percentage must be finite"),
    (ALICE, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
    (ALICE, {"producer_byte_rate": 1e19}, "Proposed value for producer_byte_rate is too large"),
    (
        {"ip": None},
        {"connection_creation_rate": 2.0**31},
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
]


@pytest.mark.parametrize(("entity", "values", "reason"), REJECTED)
@scenario(run)
async def test_invalid_quotas_are_rejected(
    bench: Bench, /, entity: Entity, values: dict[str, float], reason: str
) -> None:
    # The other quota of the entity is not stored either, but that of another entity is.
    bad = entry(entity, **({"consumer_byte_rate": 1} if "ip" not in entity else {}), **values)
    (rejected, accepted) = await alter(bench, bad, entry({"user": "b"}, producer_byte_rate=1))
    assert rejected[0] is ErrorCode.INVALID_REQUEST
    assert (rejected[1] or "").startswith(reason)
    assert accepted == (ErrorCode.NONE, None)
    assert list(bench.broker.image.client_quotas) == [(QuotaEntity("user", "b"),)]


@scenario(run)
async def test_an_entity_appears_once(bench: Bench, /) -> None:
    """As in Kafka, the first entry is applied, and the response has the error of the second."""
    first, second = entry(ALICE, producer_byte_rate=1), entry(ALICE, producer_byte_rate=2)
    ((code, message),) = await alter(bench, first, second)
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity {user=alice}")
    assert bench.broker.image.client_quotas == {
        (QuotaEntity("user", "alice"),): {"producer_byte_rate": 1}
    }


@scenario(run)
async def test_one_request_has_a_limit(bench: Bench, /) -> None:
    entries = [
        entry({"user": f"u{number}"}, producer_byte_rate=1, consumer_byte_rate=1)
        for number in range(5_001)
    ]
    results = await alter(bench, *entries)
    assert {code for code, _ in results} == {ErrorCode.POLICY_VIOLATION}
    assert not bench.broker.image.client_quotas


@scenario(run)
async def test_changes_are_in_the_security_log(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="lograft.security")
    await alter(
        bench,
        entry({"user": "alice", "client-id": None}, producer_byte_rate=1_000),
        entry(ALICE, consumer_byte_rate=0),
    )
    await alter(bench, entry(ALICE, producer_byte_rate=9), validate_only=True)
    lines = [record.message for record in caplog.records if record.name == "lograft.security"]
    assert lines == [
        "event=quota-change outcome=success principal=User:ANONYMOUS"
        ' entity="user=alice,client-id=<default>" change="producer_byte_rate=1000"'
        " client=10.0.0.1",
        "event=quota-change outcome=failure"
        ' reason="Quota consumer_byte_rate must be greater than 0" principal=User:ANONYMOUS'
        ' entity="user=alice" change="consumer_byte_rate=0" client=10.0.0.1',
    ]
