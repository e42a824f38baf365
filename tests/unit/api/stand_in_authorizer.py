"""An authorizer in memory, for tests: allows everything that is not denied, and records
requests."""

from collections.abc import Sequence

from lograft.security.authorization import Need, Permission


class StandInAuthorizer:
    _version = 0

    def __init__(self) -> None:
        #: Permissions that all principals are denied.
        self.denied: set[Permission] = set()
        #: Resources on which all principals are denied every operation.
        self.hidden: set[str] = set()
        #: The permissions of these principals. Others are allowed everything that is not denied.
        self.granted: dict[str, set[Permission]] = {}
        #: Principal, host and need of every request.
        self.requested: list[tuple[str, str, Need]] = []

    @property
    def version(self) -> int:
        """Tests change the attributes at any time: no decision is ever valid for long."""
        self._version += 1
        return self._version

    def authorize(self, principal: str, host: str, needs: Sequence[Need]) -> list[bool]:
        self.requested += ((principal, host, need) for need in needs)
        return [
            self._is_allowed(principal, Permission(need.operation, need.resource_type))
            and need.name not in self.hidden
            for need in needs
        ]

    def describe_rule(self, principal: str, host: str, need: Need) -> str:
        return "test"

    def authorize_any(self, principal: str, host: str, permission: Permission) -> bool:
        self.requested.append((principal, host, Need(*permission, "*")))
        return self._is_allowed(principal, permission)

    def _is_allowed(self, principal: str, permission: Permission) -> bool:
        granted = self.granted.get(principal)
        return permission not in self.denied and (granted is None or permission in granted)

    @property
    def permissions_requested(self) -> set[Permission]:
        return {Permission(need.operation, need.resource_type) for _, _, need in self.requested}
