"""Mutants of the authorization: each removes one safeguard, which the watch must detect."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from campaigns.acls.plan import draw_options
from campaigns.acls.run import run_acls
from campaigns.mutants import Patch, hunt_by_runs
from lograft.api.fetch_patterns import FetchPatterns
from lograft.api.produce_patterns import ProducePatterns
from lograft.security.acl_index import AclIndex, PatternAcls
from lograft.security.acls import ALL_OPERATIONS, ALL_USERS, WILDCARD, AclPermission, PatternType
from lograft.security.authorization import Need
from lograft.security.standard_authorizer import (
    IMPLIED_BY,
    Rule,
    RuleKind,
    StandardAuthorizer,
)
from lograft.simulation.checkers import Violation

SEEDS_MAX: Final = 40
#: One key for all principals, hosts and versions of the ACLs.
SHARED_ACCESS: Final = bytes(16)


def _keep_decisions(self: StandardAuthorizer) -> None:
    self.version += 1


def _keep_version(self: StandardAuthorizer) -> None:
    self._decisions.clear()


def _explain_first_match(self: StandardAuthorizer, principal: str, host: str, need: Need) -> Rule:
    """The first ACL that matches decides, whether it allows or denies."""
    if principal in self.super_users:
        return Rule(RuleKind.SUPER_USER, True)
    allowing = IMPLIED_BY.get(need.operation, frozenset((need.operation,)))
    kind = RuleKind.NO_ACLS
    for pattern in self._acls.find(need.resource_type, need.name):
        kind = RuleKind.NO_MATCH
        for name in (principal, ALL_USERS):
            for acl in pattern.get(name, {}).values():
                is_allow = acl.permission == AclPermission.ALLOW
                operations = allowing if is_allow else (need.operation,)
                if acl.host in (host, WILDCARD) and (
                    acl.operation in operations or acl.operation == ALL_OPERATIONS
                ):
                    return Rule(RuleKind.ACL, is_allow, acl)
    return Rule(kind, kind is RuleKind.NO_ACLS and self._allow_if_no_acl)


def _find_prefixes_as_names(self: AclIndex, resource_type: int, name: str) -> Iterator[PatternAcls]:
    for key in (
        (resource_type, PatternType.LITERAL, name),
        (resource_type, PatternType.PREFIXED, name),
        (resource_type, PatternType.LITERAL, WILDCARD),
    ):
        if key in self._patterns:
            yield self._patterns[key]


def _authorize_at_any_host(
    self: StandardAuthorizer, principal: str, host: str, needs: Sequence[Need]
) -> list[bool]:
    """A decision for one host is valid for all of them."""
    results = []
    for need in needs:
        key = (principal, "", need.operation, need.resource_type, need.name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._cache(key, self.explain(principal, host, need).is_allowed)
        results.append(allowed)
    return results


def _serve_any_produce(self: ProducePatterns, frame: memoryview, access: bytes) -> Any:
    return _SERVE_PRODUCE(self, frame, SHARED_ACCESS)


def _learn_any_produce(
    self: ProducePatterns, frame: memoryview, context: Any, request: Any, access: bytes
) -> None:
    _LEARN_PRODUCE(self, frame, context, request, SHARED_ACCESS)


def _serve_any_fetch(self: FetchPatterns, frame: memoryview, access: bytes, generic: Any) -> Any:
    return _SERVE_FETCH(self, frame, SHARED_ACCESS, generic)


def _learn_any_fetch(
    self: FetchPatterns, frame: memoryview, context: Any, request: Any, access: bytes
) -> None:
    _LEARN_FETCH(self, frame, context, request, SHARED_ACCESS)


_SERVE_PRODUCE: Final[Any] = ProducePatterns.serve
_LEARN_PRODUCE: Final[Any] = ProducePatterns.learn
_SERVE_FETCH: Final[Any] = FetchPatterns.serve
_LEARN_FETCH: Final[Any] = FetchPatterns.learn

ACL_MUTANTS: Final[dict[str, tuple[str, list[Patch]]]] = {
    "stale decisions": (
        "a change of the ACLs does not discard cached decisions",
        [(StandardAuthorizer, "_forget", _keep_decisions)],
    ),
    "version of the ACLs unchanged": (
        "a change of the ACLs does not invalidate the patterns of the fast paths",
        [(StandardAuthorizer, "_forget", _keep_version)],
    ),
    "deny ignored after allow": (
        "the first matching ACL decides",
        [(StandardAuthorizer, "explain", _explain_first_match)],
    ),
    "prefix taken as literal": (
        "a prefixed ACL matches only the resource with this name",
        [(AclIndex, "find", _find_prefixes_as_names)],
    ),
    "decisions shared by hosts": (
        "a cached decision applies to all hosts of a principal",
        [(StandardAuthorizer, "authorize", _authorize_at_any_host)],
    ),
    "Produce fast path unchecked": (
        "a pattern of Produce serves all principals, whatever the ACLs are now",
        [
            (ProducePatterns, "serve", _serve_any_produce),
            (ProducePatterns, "learn", _learn_any_produce),
        ],
    ),
    "Fetch fast path unchecked": (
        "a pattern of Fetch serves all principals, whatever the ACLs are now",
        [(FetchPatterns, "serve", _serve_any_fetch), (FetchPatterns, "learn", _learn_any_fetch)],
    ),
}


def hunt_acls(name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0) -> tuple[int, str] | None:
    """Returns the number of seeds and what caught the mutant, or None."""

    def run(seed: int) -> Sequence[Violation]:
        options = replace(draw_options(seed), seconds=3, faults=[], steps=[], pace_ms=(1, 10))
        return run_acls(seed, options)[0].violations

    return hunt_by_runs(run, ACL_MUTANTS[name][1], range(first, first + seeds_max))
