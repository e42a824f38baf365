"""Selects client quotas for the filter of a DescribeClientQuotas request."""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import QuotaEntity
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.describe_client_quotas import ComponentData

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)


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
                    f"Only an exact match takes a name; entity type {entity_type} has {name!r}."
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
