"""The declarations of an API module: its key, its versions and the permissions of its requests."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lograft.security.authorization import CLUSTER_NAME, Permission

#: Returns the resources to which a request needs access. Empty: no permission is needed.
FindNames = Callable[[Any], Iterable[str]]
IsNeeded = Callable[[Any], bool]


class RequestNeed(NamedTuple):
    """A permission for the whole request: one of `any_of`, on every resource that it names."""

    any_of: tuple[Permission, ...]
    names: FindNames
    #: Selects the requests that need it.
    when: IsNeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    #: The router checks these in order before it calls the handler. The first that is not met fails
    #: the request.
    request: tuple[RequestNeed, ...] = ()
    #: The handler checks these for each item of a list (`authorization.find_denied`).
    items: tuple[Permission, ...] = ()

    def __add__(self, other: "Needs") -> "Needs":
        return Needs(request=self.request + other.request, items=self.items + other.items)

    @property
    def permissions(self) -> frozenset[Permission]:
        """All permissions that a request of this API may need."""
        permissions = (permission for need in self.request for permission in need.any_of)
        return frozenset((*permissions, *self.items))


def the_cluster(request: Any) -> Iterable[str]:
    return (CLUSTER_NAME,)


def group_of(request: Any) -> Iterable[str]:
    return (request.group_id,)


def transactional_id_of(request: Any) -> Iterable[str]:
    """Returns nothing for requests without a transaction."""
    return () if request.transactional_id is None else (request.transactional_id,)


def always(request: Any) -> bool:
    return True


def whole_request(
    *any_of: Permission, names: FindNames = the_cluster, when: IsNeeded = always
) -> Needs:
    """The request fails unless one of these permissions is granted on every resource of `names`."""
    return Needs(request=(RequestNeed(any_of, names, when),))


def each_item(*permissions: Permission) -> Needs:
    """Without these permissions an item of the request or response is rejected or omitted."""
    return Needs(items=permissions)


#: For requests without required permissions.
NOTHING: Final = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: int
    #: Those of Kafka 4.3 (a test compares); the advertised range is in the table of `wire`.
    versions: range
    #: Those of Kafka (tests/unit/api/test_types.py has its table).
    needs: Needs
