"""What the parts of `Admin` have in common: they are opened, used and closed as one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from lograft.client.administering.calls import Calls
from lograft.client.administering.settings import AdminSettings
from lograft.client.core import ClientCore
from lograft.client.errors import WrongUse
from lograft.client.opened import Opened
from lograft.model.seams import Address, Runtime

if TYPE_CHECKING:
    from lograft.client.keywords import AdminKeywords


class AdminPart(Opened):
    """A part is a group of methods about one thing; `Admin` is all of them."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        runtime: Runtime | None = None,
        **keywords: "Unpack[AdminKeywords]",
    ) -> None:
        self.settings = AdminSettings.read(settings or {}, **keywords)
        self._runtime = runtime
        self._core: ClientCore[AdminSettings] | None = None
        self._opened: Calls | None = None

    async def start(self) -> None:
        """Opens the administrator. Nobody is asked yet."""
        if self._core is not None:
            raise WrongUse("the administrator has been started already")
        self._core = ClientCore(self.settings, runtime=self._runtime)
        # Every call asks for what it needs to know at that moment.
        self._core.metadata.close()
        self._opened = Calls(self._core)

    async def connect(self) -> None:
        """Makes sure that one of the named servers answers, and raises ConnectionFailed at once if
        none does; other calls are more patient.

            await admin.connect()
        """
        await self._calls.connect()

    async def probe(self, node: int | Address) -> None:
        """Makes sure that one node answers at its address, a broker by its id at the address that
        it advertises; raises ConnectionFailed at once, whose `stage` says how far it came, or
        BrokerMissing.

            await admin.probe(1)
        """
        await self._calls.probe(node)

    def statistics(self) -> dict[str, int]:
        """How many connections there are, and what is under way on them.

        print(admin.statistics()["connections"])
        """
        return {} if self._core is None else self._core.network.statistics()

    async def close(self) -> None:
        if self._core is not None:
            await self._core.close()

    def _describe_open(self) -> str | None:
        core = getattr(self, "_core", None)
        return None if core is None or core.is_closed else "administrator"

    @property
    def _calls(self) -> Calls:
        if self._opened is None:
            raise WrongUse("the administrator is not open: use `async with`, or await start()")
        return self._opened
