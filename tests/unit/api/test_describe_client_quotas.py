import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

Entity = dict[str, str | None]
ENTITIES: list[Entity] = [
    {"user": "alice"},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
    {"user": "alice", "client-id": "c"},
    {"user": "alice", "client-id": None},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"ip": "10.0.0.1"},
    {"ip": None},
]
EXACT, DEFAULT, ANY = 0, 1, 2
Component = tuple[str, int, str | None]


def records() -> tuple[ClientQuotaRecord, ...]:
    return tuple(
        ClientQuotaRecord(
            entity=[
                EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
            ],
            key="connection_creation_rate" if "ip" in entity else "producer_byte_rate",
            value=float(number),
        )
        for number, entity in enumerate(ENTITIES)
    )


async def describe(
    bench: Bench, *components: Component, strict: bool, version: int = 1
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in components
        ],
        strict=strict,
    )
    return await bench.ask(request, version, DescribeClientQuotasResponse)


#: Components, and the entities that they select: without strict, and with strict.
FILTERS: list[tuple[tuple[Component, ...], list[int], list[int]]] = [
    ((), list(range(10)), []),
    ((("user", EXACT, "alice"),), [0, 4, 5], [0]),
    ((("user", EXACT, "bob"),), [], []),
    ((("user", DEFAULT, None),), [1, 6, 7], [1]),
    ((("user", ANY, None),), [0, 1, 4, 5, 6, 7], [0, 1]),
    ((("client-id", EXACT, "c"),), [2, 4, 6], [2]),
    ((("user", ANY, None), ("client-id", ANY, None)), [4, 5, 6, 7], [4, 5, 6, 7]),
    ((("user", EXACT, "alice"), ("client-id", DEFAULT, None)), [5], [5]),
    ((("ip", ANY, None),), [8, 9], [8, 9]),
    ((("ip", EXACT, "10.0.0.1"),), [8], [8]),
]


@pytest.mark.parametrize(("components", "selected", "strictly"), FILTERS)
@pytest.mark.parametrize("version", [0, 1])
@scenario(run)
async def test_filters_select_quotas(
    bench: Bench,
    /,
    components: tuple[Component, ...],
    selected: list[int],
    strictly: list[int],
    version: int,
) -> None:
    bench.controller.append(records())
    for strict, expected in ((False, selected), (True, strictly)):
        response = await describe(bench, *components, strict=strict, version=version)
        assert response.error_code == 0
        assert response.entries is not None
        assert [
            {part.entity_type: part.entity_name for part in entry.entity}
            for entry in response.entries
        ] == [ENTITIES[number] for number in expected]
        assert [entry.values[0].value for entry in response.entries] == expected


@pytest.mark.parametrize(
    ("components", "code", "reason"),
    [
        ((("user", EXACT, None),), ErrorCode.INVALID_REQUEST, "requires a name"),
        ((("user", DEFAULT, "x"),), ErrorCode.INVALID_REQUEST, "only for an exact match"),
        ((("user", ANY, "x"),), ErrorCode.INVALID_REQUEST, "only for an exact match"),
        ((("user", 3, None),), ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        ((("", ANY, None),), ErrorCode.INVALID_REQUEST, "is empty"),
        ((("host", ANY, None),), ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type host"),
        ((("user", ANY, None),) * 2, ErrorCode.INVALID_REQUEST, "more than once"),
        ((("user", ANY, None), ("ip", ANY, None)), ErrorCode.INVALID_REQUEST, "be combined"),
    ],
)
@scenario(run)
async def test_invalid_filters_are_rejected(
    bench: Bench, /, components: tuple[Component, ...], code: ErrorCode, reason: str
) -> None:
    response = await describe(bench, *components, strict=False)
    assert response.error_code == code
    assert reason in (response.error_message or "")
    assert response.entries is None
