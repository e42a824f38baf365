"""Runs async tests from a decorator."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final

from lograft.simulation.cluster import SimulatedCluster
from lograft.testing import VirtualCluster

SECONDS_MAX: Final = 60.0

Body = Callable[..., Coroutine[Any, Any, None]]


def run_in_asyncio(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In a real event loop, for at most a minute."""

    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await body()

    asyncio.run(main())


def run_in_virtual_cluster(
    body: Callable[[VirtualCluster], Coroutine[Any, Any, None]],
    nodes: int = 3,
    *,
    seed: int = 0,
    is_static: bool = False,
    **options: Any,
) -> None:
    """All nodes have started."""
    VirtualCluster(nodes, seed=seed, is_static=is_static, **options).play(body)


def run_in_simulated_cluster(
    body: Callable[[SimulatedCluster], Coroutine[Any, Any, None]],
    nodes: int = 3,
    *,
    seed: int = 0,
    **options: Any,
) -> None:
    """The test starts the nodes."""
    cluster = SimulatedCluster(nodes, seed=seed, **options)
    cluster.run(body(cluster))


def scenario(
    run: Callable[..., object] = run_in_asyncio, *arguments: Any, **settings: Any
) -> Callable[[Body], Callable[..., None]]:
    """Runs an async test as `run(body, *arguments, **settings)`, where `body` is the test.

    `run` owns the event loop and awaits `body` once. What it passes to `body` (a broker, a cluster,
    a client) arrives in the test's positional-only parameters, those before the `/`; pytest fills
    in the others. A parameter of `run` that the decorator leaves open takes the fixture or the
    parametrized argument of the same name, unless it has a default and the test does not ask for
    that name.
    """
    parameters = list(inspect.signature(run).parameters.values())[1:]
    given = inspect.signature(run).bind_partial(None, *arguments, **settings).arguments

    def decorate(test: Body) -> Callable[..., None]:
        signature = inspect.signature(test)
        asked = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind is not parameter.POSITIONAL_ONLY
        }
        shared = [
            parameter
            for parameter in parameters
            if parameter.name not in given
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and (parameter.name in asked or parameter.default is parameter.empty)
        ]

        requested = asked | {each.name: each for each in shared if each.name not in asked}

        @functools.wraps(test)
        def play(*positional: Any, **named: Any) -> None:
            # Hypothesis passes arguments by position, pytest by name.
            fixtures = dict(zip(requested, positional, strict=False)) | named
            has_run = False

            async def body(*world: Any) -> None:
                nonlocal has_run
                await test(*world, **{name: fixtures[name] for name in asked})
                has_run = True

            run(body, *arguments, **settings, **{each.name: fixtures[each.name] for each in shared})
            assert has_run, f"{run} returned before the test was at its end"

        play.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                each.replace(kind=each.POSITIONAL_OR_KEYWORD, default=each.empty)
                for each in requested.values()
            ]
        )
        return play

    return decorate
