"""Client quotas in the metadata image: the controller's decisions about them, and those that match
the filter of a DescribeClientQuotas request.

A quota belongs to an entity: a user, a client id, both, or an IP address, or the default of these.
Which quota applies to a client is decided in `security/quota_limits.py`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult, QuotaEntity
from lograft.model.errors import ErrorCode, Rejected
from lograft.security.quota_limits import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from lograft.wire.message import Message
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    OpData,
)
from lograft.wire.messages.describe_client_quotas import ComponentData
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData

ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
#: Quotas by entity type, with the largest value if they are integers.
CLIENT_QUOTAS: Final[Mapping[str, float | None]] = {
    PRODUCER_BYTE_RATE: float(1 << 63),
    CONSUMER_BYTE_RATE: float(1 << 63),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
IP_QUOTAS: Final[Mapping[str, float | None]] = {CONNECTION_CREATION_RATE: float((1 << 31) - 1)}
#: As in Kafka, what one request may change.
RECORDS_MAX: Final = 10_000
#: Differences below this do not make a number fractional.
_EPSILON: Final = 1e-6


class Match(IntEnum):
    """How a filter component matches the entities of its type."""

    EXACT = 0
    #: The default entity.
    DEFAULT = 1
    #: Any entity.
    SPECIFIED = 2


class QuotaFilter:
    """A validated filter."""

    __slots__ = ("_names", "_strict", "_types")

    def __init__(self, components: Sequence[ComponentData], *, strict: bool) -> None:
        """Raises Rejected for invalid or contradictory components."""
        #: Entity name by entity type; None is the default entity of the type.
        self._names: dict[str, str | None] = {}
        #: Entity types for which any name matches.
        self._types: set[str] = set()
        #: Whether entities with additional types are excluded.
        self._strict = strict
        for component in components:
            self._add(component)
        wanted = self._names.keys() | self._types
        if IP in wanted and len(wanted) > 1:
            raise _invalid("An ip component cannot be combined with user or client-id components.")

    def _add(self, component: ComponentData) -> None:
        entity_type, name = component.entity_type, component.match
        if not entity_type:
            raise _invalid("The entity type of a filter component is empty.")
        if entity_type in self._names or entity_type in self._types:
            raise _invalid(f"Entity type {entity_type} appears more than once in the filter.")
        if entity_type not in ENTITY_TYPES:
            raise Rejected(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unsupported entity type {entity_type}; use one of {', '.join(ENTITY_TYPES)}.",
            )
        match component.match_type:
            case Match.EXACT if name is None:
                raise _invalid(f"An exact match of entity type {entity_type} requires a name.")
            case Match.DEFAULT | Match.SPECIFIED if name is not None:
                raise _invalid(
                    f"A name is allowed only for an exact match; entity type {entity_type} has"
                    f" {name!r}."
                )
            case Match.EXACT | Match.DEFAULT:
                self._names[entity_type] = name
            case Match.SPECIFIED:
                self._types.add(entity_type)
            case unknown:
                raise _invalid(f"Unknown match type {unknown}.")

    def matches(self, entity: tuple[QuotaEntity, ...]) -> bool:
        names: Mapping[str, str | None] = dict(entity)
        if self._strict and len(names) != len(self._names) + len(self._types):
            return False
        return all(
            entity_type in names and names[entity_type] == name
            for entity_type, name in self._names.items()
        ) and all(entity_type in names for entity_type in self._types)


def select_quotas(
    image: MetadataImage, selected: QuotaFilter
) -> Iterator[tuple[tuple[QuotaEntity, ...], Mapping[str, float]]]:
    for entity, values in image.client_quotas.items():
        if selected.matches(entity):
            yield entity, values


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, message)


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> ControllerResult[AlterClientQuotasResponse]:
    """Decides each entity separately: a rejected entity does not affect the others. As in Kafka,
    the first entry of an entity that appears twice is applied, and the error reported."""
    records: list[Message] = []
    errors: dict[frozenset[QuotaEntity], Rejected | None] = {}
    for entry in request.entries:
        entity = _entity_of(entry)
        key = frozenset(entity)
        if key in errors or len({op.key for op in entry.ops}) < len(entry.ops):
            errors[key] = _invalid(f"Ignoring duplicate entity {_describe(entity)}")
            continue
        try:
            records += _records_of(image, entity, entry.ops)
            errors[key] = None
        except Rejected as error:
            errors[key] = error
    if len(records) > RECORDS_MAX:
        raise Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"One request may change at most {RECORDS_MAX} quotas. Split it.",
        )
    if request.validate_only:
        records.clear()
    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=0 if error is None else error.code,
            error_message=None if error is None else error.message,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=part.type, entity_name=part.name)
                for part in sorted(entity, key=lambda part: part.type)
            ],
        )
        for entity, error in errors.items()
    ]
    return ControllerResult(tuple(records), AlterClientQuotasResponse(entries=entries))


def _entity_of(entry: AlterClientQuotasRequestEntryData) -> tuple[QuotaEntity, ...]:
    """Returns the parts in the order of their types; as in Kafka, the last of each type counts."""
    names = {part.entity_type: part.entity_name for part in entry.entity}
    return tuple(QuotaEntity(kind, names[kind]) for kind in sorted(names))


def _records_of(
    image: MetadataImage, entity: tuple[QuotaEntity, ...], changes: Iterable[OpData]
) -> Iterator[Message]:
    """Yields the records of one entity's changes, after all of them were checked."""
    known = _quotas_of(entity)
    current = image.client_quotas.get(entity, {})
    records = []
    for change in changes:
        if change.remove:
            if change.key not in current:
                continue
        else:
            _check_value(known, change.key, change.value)
            if current.get(change.key) == change.value:
                continue
        records.append(
            ClientQuotaRecord(
                entity=[
                    EntityData(entity_type=part.type, entity_name=part.name) for part in entity
                ],
                key=change.key,
                value=0.0 if change.remove else change.value,
                remove=change.remove,
            )
        )
    yield from records


def _quotas_of(entity: tuple[QuotaEntity, ...]) -> Mapping[str, float | None]:
    """Returns the quotas that the entity may have. Raises Rejected if there cannot be such an
    entity."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for part in entity:
        if part.type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {part.type}")
        if part.name == "":
            raise _invalid(f"Empty {part.type} not supported")
    names = dict(entity)
    if IP not in names:
        return CLIENT_QUOTAS
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    if names[IP] is not None and not is_ip_address(names[IP] or ""):
        raise _invalid(f"{names[IP]} is not a valid IP address.")
    return IP_QUOTAS


def is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_value(known: Mapping[str, float | None], key: str, value: float) -> None:
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    value_max = known[key]
    if value_max is None:
        if math.isinf(value):
            raise _invalid(f"Quota {key} must be finite")
        return
    if value > value_max:
        kind = "an INT" if key in IP_QUOTAS else "a LONG"
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if abs(value - round(value)) > _EPSILON:
        raise _invalid(f"{key} cannot be a fractional value.")


def _describe(entity: Iterable[QuotaEntity]) -> str:
    parts = ", ".join(f"{part.type}={part.name or '<default>'}" for part in entity)
    return f"{{{parts}}}"
