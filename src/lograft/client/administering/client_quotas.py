"""Requests about client quotas, which are in the cluster metadata."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lograft.client.administering.request_driver import RequestDriver
from lograft.client.errors import ClientError, broker_error, raise_for
from lograft.client.network import Node
from lograft.model.errors import InvalidInput
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from lograft.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota limits: a user, a client id, both, or an IP address. An empty name
    is the default of all users, client ids or addresses without a quota of their own.

    alice = QuotaEntity(user="alice")
    await admin.alter_client_quotas({alice: {"producer_byte_rate": 1 << 20}})
    every_client = QuotaEntity(client_id="")
    await admin.alter_client_quotas({every_client: {"consumer_byte_rate": 1 << 20}})
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {name}" if name else f"default {kind}" for kind, name in parts_of(self)
        )


def parts_of(entity: QuotaEntity) -> Iterator[tuple[str, str]]:
    """Yields the types of the entity with their names."""
    for kind, name in (
        ("user", entity.user),
        ("client-id", entity.client_id),
        ("ip", entity.ip),
    ):
        if name is not None:
            yield kind, name


async def describe_client_quotas(
    driver: RequestDriver, entity: QuotaEntity | None
) -> dict[QuotaEntity, dict[str, float]]:
    components = [
        ComponentData(entity_type=kind, match_type=0 if name else 1, match=name or None)
        for kind, name in (() if entity is None else parts_of(entity))
    ]
    response = await driver.result_of(
        DescribeClientQuotasRequest(components=components, strict=bool(components)),
        DescribeClientQuotasResponse,
        lambda response: raise_for(response.error_code, "quotas", response.error_message),
    )
    found = {}
    for entry in response.entries or ():
        names = {part.entity_type: part.entity_name or "" for part in entry.entity}
        known = QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))
        found[known] = {value.key: value.value for value in entry.values}
    return found


async def alter_client_quotas(
    driver: RequestDriver,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool,
) -> None:
    for entity in changes:
        if not list(parts_of(entity)):
            raise InvalidInput("a quota needs a user, a client id or an IP address")

    async def send(
        node: Node | None, entities: Sequence[QuotaEntity]
    ) -> dict[QuotaEntity, ClientError | None]:
        request = AlterClientQuotasRequest(
            entries=[_entry(entity, changes[entity]) for entity in entities],
            validate_only=validate_only,
        )
        response = await driver.send(node, request, AlterClientQuotasResponse)
        outcomes: dict[QuotaEntity, ClientError | None] = {}
        for entry in response.entries:
            names = {part.entity_type: part.entity_name or "" for part in entry.entity}
            entity = QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))
            outcomes[entity] = (
                broker_error(entry.error_code, f"quotas of {entity}", entry.error_message)
                if entry.error_code
                else None
            )
        return outcomes

    await driver.results_of(changes, driver.any_node, send)


def _entry(
    entity: QuotaEntity, values: Mapping[str, float | None]
) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name or None)
            for kind, name in parts_of(entity)
        ],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
