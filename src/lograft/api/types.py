"""What an API module declares at its head: its key, its versions and what its requests need."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lograft.security.authorization import CLUSTER_NAME, Permission

#: Finds the resources that a request needs access to. None of them: nothing is needed.
FindNames = Callable[[Any], Iterable[str]]
IsNeeded = Callable[[Any], bool]


class RequestNeed(NamedTuple):
    """Needed for the request as a whole: one of the permissions, on every resource it names."""

    any_of: tuple[Permission, ...]
    names: FindNames
    #: Which requests need it.
    when: IsNeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    #: The router checks these in their order before it calls the handler. The first that is not
    #: met fails the request.
    request: tuple[RequestNeed, ...] = ()
    #: The handler asks for these, for each item of a list (`authorization.find_denied`).
    items: tuple[Permission, ...] = ()

    def __add__(self, other: "Needs") -> "Needs":
        return Needs(request=self.request + other.request, items=self.items + other.items)

    @property
    def permissions(self) -> frozenset[Permission]:
        """All that a request of this API may be asked for."""
        whole = (each for need in self.request for each in need.any_of)
        return frozenset((*whole, *self.items))


def the_cluster(request: Any) -> Iterable[str]:
    return (CLUSTER_NAME,)


def group_of(request: Any) -> Iterable[str]:
    return (request.group_id,)


def transactional_id_of(request: Any) -> Iterable[str]:
    """None for requests that belong to no transaction."""
    return () if request.transactional_id is None else (request.transactional_id,)


def always(request: Any) -> bool:
    return True


def whole_request(
    *any_of: Permission, names: FindNames = the_cluster, when: IsNeeded = always
) -> Needs:
    """The request fails unless one of these permissions is granted on every resource of `names`."""
    return Needs(request=(RequestNeed(any_of, names, when),))


def each_item(*permissions: Permission) -> Needs:
    """An item of the request, or of its response, is rejected or left out without them."""
    return Needs(items=permissions)


#: For requests that everybody may send.
NOTHING: Final = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: int
    #: Those of Kafka 4.3 (a test compares); what is advertised comes from the wire's table.
    versions: range
    #: Those of Kafka (tests/unit/api/test_types.py has its table).
    needs: Needs
