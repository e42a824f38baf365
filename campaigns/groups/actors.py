"""Client processes with identities that outlive them: they crash, come back, leave, have twins."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from campaigns.groups.membership import ActorContext, Membership, TurnOver
from campaigns.groups.plan import ActorEvent, ActorPlan
from lograft.simulation.history import History
from lograft.simulation.machine import Machine

#: How long a member that leaves waits for its answer.
LEAVE_SECONDS: Final = 2.0
#: A twin lives at least so long that both meet.
TWIN_MS: Final = 1_000


class Behaviour(Protocol):
    """What a process does from its start to its end."""

    @property
    def membership(self) -> Membership | None: ...

    async def run(self) -> None: ...


class World(Protocol):
    """What actors need of the run that they play in."""

    history: History

    def machine(self, name: str) -> Machine: ...

    def surroundings(self, proc: str, machine: Machine) -> ActorContext: ...

    def cut_off(self, name: str) -> None: ...

    def mend(self, name: str) -> None: ...

    def later(self, ms: int, act: Callable[[], None]) -> None: ...


class Actor:
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
        self._playing: asyncio.Task[None] | None = None
        self.behaviour: Behaviour | None = None
        #: It does not come back by itself.
        self.is_gone = False
        #: The play is over, whatever was in store for it.
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
        around = self._world.surroundings(proc, self._machine)
        self.behaviour = self._make(around, self.plan)
        self._playing = life.run(self.behaviour.run(), name=proc)
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
        """Says goodbye, if it can, and ends."""
        life = self._machine.life
        if life is None or self._playing is None:
            return
        # Once: a second goodbye would end the first one's request under its own name.
        self._playing.cancel()
        self._playing = None
        behaviour = self.behaviour
        # One that was in the middle of a request does not know how that ended: a process of its
        # own name would end it twice.
        if behaviour is not None and behaviour.membership is not None:
            life.run(self._say_goodbye(behaviour.membership), name="leave")
        self._world.later(int(LEAVE_SECONDS * 1000), self.kill)

    async def _say_goodbye(self, membership: Membership) -> None:
        around = membership.around
        membership.around = around._replace(proc=f"{around.proc}-leave")
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
    """All actors of a run, and what its plan has in store for them."""

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

    def everybody(self) -> list[Actor]:
        return [*self.actors.values(), *self.twins]

    async def follow(self, events: list[ActorEvent]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for event in events:
            await asyncio.sleep(max(0.0, start + event.at_ms / 1000 - loop.time()))
            if event.actor in self.actors:
                self._strike(event, self.actors[event.actor])

    def _strike(self, event: ActorEvent, actor: Actor) -> None:
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
                self._world.cut_off(actor.name)
                later(event.duration_ms, lambda: self._world.mend(actor.name))
            case "pause":
                actor.pause()
                later(event.duration_ms, actor.resume)
            case _:
                raise ValueError(f"nothing called {event.kind!r} befalls clients")

    def gather(self) -> None:
        """Everything is healed: twins go, everybody else plays, but those who are gone for good and
        whose part others can play."""
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
        for actor in self.everybody():
            actor.is_dismissed = True
            actor.resume()
            actor.kill()
