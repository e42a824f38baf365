"""Finds the ACLs that apply to a resource and a principal without a search.

A resource matches its own name, the wildcard, and each of its prefixes. Only the lengths at which
there are prefixes are looked up, so the cost does not depend on the number of ACLs.
"""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from lograft.security.acls import WILDCARD, Acl, PatternType

#: ACLs of one pattern by principal; the ids distinguish equal ACLs, which a log may contain.
PatternAcls = dict[str, dict[UUID, Acl]]
NO_ACLS: Final[PatternAcls] = {}


class AclIndex:
    __slots__ = ("_acls", "_patterns", "_prefix_lengths")

    def __init__(self) -> None:
        self._acls: dict[UUID, Acl] = {}
        #: By resource type, pattern type and name.
        self._patterns: dict[tuple[int, int, str], PatternAcls] = {}
        #: By resource type: the lengths of prefixes, with the number of prefixes of each length.
        self._prefix_lengths: dict[int, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._acls)

    def put(self, acl_id: UUID, acl: Acl) -> None:
        self.remove(acl_id)
        self._acls[acl_id] = acl
        key = (acl.resource_type, acl.pattern_type, acl.name)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        pattern.setdefault(acl.principal, {})[acl_id] = acl

    def remove(self, acl_id: UUID) -> None:
        """Does nothing if there is no such ACL."""
        acl = self._acls.pop(acl_id, None)
        if acl is None:
            return
        key = (acl.resource_type, acl.pattern_type, acl.name)
        pattern = self._patterns[key]
        del pattern[acl.principal][acl_id]
        if pattern[acl.principal]:
            return
        del pattern[acl.principal]
        if pattern:
            return
        del self._patterns[key]
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def find(self, resource_type: int, name: str) -> Iterator[PatternAcls]:
        """Yields the ACLs of each pattern that matches the resource: its name, then its prefixes
        from the longest to the shortest, then the wildcard."""
        patterns = self._patterns
        literal = patterns.get((resource_type, PatternType.LITERAL, name))
        if literal is not None:
            yield literal
        lengths = self._prefix_lengths.get(resource_type)
        if lengths:
            for length in sorted(lengths, reverse=True):
                if length <= len(name):
                    prefixed = patterns.get((resource_type, PatternType.PREFIXED, name[:length]))
                    if prefixed is not None:
                        yield prefixed
        if name != WILDCARD:
            wildcard = patterns.get((resource_type, PatternType.LITERAL, WILDCARD))
            if wildcard is not None:
                yield wildcard

    def of_type(self, resource_type: int) -> Iterator[Acl]:
        return (acl for acl in self._acls.values() if acl.resource_type == resource_type)
