"""Client processes with persistent identities: they crash, restart, leave, and have duplicates."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from campaigns.groups.membership import ActorContext, Membership, TurnOver
from campaigns.groups.plan import ActorEvent, ActorPlan
from lograft.simulation.history import History
from lograft.simulation.machine import Machine

#: How long a leaving member waits for the response.
LEAVE_SECONDS: Final = 2.0
#: Minimum lifetime of a twin, so that both processes are active at the same time.
TWIN_MS: Final = 1_000


class Behaviour(Protocol):
    """The work of a client process."""

    @property
    def membership(self) -> Membership | None: ...

    async def run(self) -> None: ...


class World(Protocol):
    """The run, as seen by actors."""

    history: History

    def machine(self, name: str) -> Machine: ...

    def make_context(self, proc: str, machine: Machine) -> ActorContext: ...

    def isolate_client(self, name: str) -> None: ...

    def reconnect_client(self, name: str) -> None: ...

    def later(self, ms: int, act: Callable[[], None]) -> None: ...


class Actor:
    """A client identity, and the process that currently uses it."""

    def __init__(
        self,
        world: World,
        plan: ActorPlan,
        make: Callable[[ActorContext, ActorPlan], Behaviour],
        *,
        name: str,
    ) -> None:
        self.plan = plan
        self.name = name
        self._world = world
        self._make = make
        self._machine = world.machine(name)
        self._lives = 0
        self._work: asyncio.Task[None] | None = None
        self.behaviour: Behaviour | None = None
        #: Whether it does not restart by itself.
        self.is_gone = False
        #: Whether the run of clients has ended, so that it must not be started again.
        self.is_dismissed = False

    @property
    def is_alive(self) -> bool:
        return self._machine.life is not None and self.behaviour is not None

    @property
    def membership(self) -> Membership | None:
        return None if self.behaviour is None else self.behaviour.membership

    def start(self) -> None:
        if self.behaviour is not None or self.is_dismissed:
            return
        life = self._machine.life or self._machine.boot()
        self._lives += 1
        proc = f"{self.name}.{self._lives}"
        context = self._world.make_context(proc, self._machine)
        self.behaviour = self._make(context, self.plan)
        self._work = life.run(self.behaviour.run(), name=proc)
        self._world.history.record(proc, "probe", "born", actor=self.plan.name)

    def kill(self) -> None:
        if self._machine.life is None:
            return
        self._record_death()
        self._machine.kill()
        self.behaviour = None

    def _record_death(self) -> None:
        membership = self.membership
        if membership is not None:
            self._world.history.record(
                self.name, "probe", "member_died", group=membership.group,
                member=membership.member_id,
            )  # fmt: skip

    def leave(self) -> None:
        """Leaves the group, if it is a member, and ends."""
        life = self._machine.life
        if life is None or self._work is None:
            return
        # Only once: a second leave would complete the first one's request in the history.
        self._work.cancel()
        self._work = None
        behaviour = self.behaviour
        # The interrupted request stays pending in the history, so the leave is recorded under
        # another process name.
        if behaviour is not None and behaviour.membership is not None:
            life.run(self._leave_group(behaviour.membership), name="leave")
        self._world.later(int(LEAVE_SECONDS * 1000), self.kill)

    async def _leave_group(self, membership: Membership) -> None:
        context = membership.context
        membership.context = context._replace(proc=f"{context.proc}-leave")
        try:
            await membership.leave()
        except TurnOver:
            pass

    def pause(self) -> None:
        if self._machine.life is not None:
            self._machine.life.process.pause()

    def resume(self) -> None:
        life = self._machine.life
        if life is not None and life.process.is_paused:
            self._machine.loop.resume(life.process)


class Cast:
    """All actors of a run; applies the events of its plan to them."""

    def __init__(
        self,
        world: World,
        plans: Iterable[ActorPlan],
        make: Callable[[ActorContext, ActorPlan], Behaviour],
    ) -> None:
        self._world = world
        self._make = make
        self.actors = {plan.name: Actor(world, plan, make, name=plan.name) for plan in plans}
        self.twins: list[Actor] = []

    def start(self) -> None:
        for actor in self.actors.values():
            actor.start()

    def all_actors(self) -> list[Actor]:
        return [*self.actors.values(), *self.twins]

    async def follow(self, events: list[ActorEvent]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for event in events:
            await asyncio.sleep(max(0.0, start + event.at_ms / 1000 - loop.time()))
            if event.actor in self.actors:
                self._apply(event, self.actors[event.actor])

    def _apply(self, event: ActorEvent, actor: Actor) -> None:
        later = self._world.later
        match event.kind:
            case "crash":
                actor.kill()
                later(event.duration_ms, actor.start)
            case "gone":
                actor.is_gone = True
                actor.kill()
            case "leave":
                actor.leave()
                later(event.duration_ms + int(LEAVE_SECONDS * 1000), actor.start)
            case "twin":
                name = f"{actor.name}t{len(self.twins) + 1}"
                twin = Actor(self._world, actor.plan, self._make, name=name)
                self.twins.append(twin)
                twin.start()
                later(event.duration_ms + TWIN_MS, twin.kill)
            case "silence":
                self._world.isolate_client(actor.name)
                later(event.duration_ms, lambda: self._world.reconnect_client(actor.name))
            case "pause":
                actor.pause()
                later(event.duration_ms, actor.resume)
            case _:
                raise ValueError(f"unknown client event {event.kind!r}")

    def gather(self) -> None:
        """Called after all faults are cleared: kills twins and starts all other actors, except
        those that are gone if another actor has the same role."""
        for twin in self.twins:
            twin.kill()
        for actor in self.actors.values():
            actor.resume()
            others = [
                each
                for each in self.actors.values()
                if each is not actor
                and (each.plan.role, each.plan.group) == (actor.plan.role, actor.plan.group)
                and not each.is_gone
            ]
            if not actor.is_gone or not others:
                actor.is_gone = False
                actor.start()

    def dismiss(self) -> None:
        for actor in self.all_actors():
            actor.is_dismissed = True
            actor.resume()
            actor.kill()
