"""Runs a node in a thread of its own, so that it behaves like a process.

Nodes share nothing but sockets. A kill stops the event loop between two callbacks for good, so that
only the data on the node's disk remains.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from lograft.api.router import Router
from lograft.broker.quorum.formatting import FormatRequest, format_directories
from lograft.model.exchange import HandlerFactory
from lograft.model.seams import Runtime
from lograft.model.settings.broker import BrokerConfig
from lograft.node import Node
from lograft.runtime.clock import SystemClock
from lograft.runtime.event_loop import fastest_loop_factory
from lograft.runtime.randomness import SystemRandomness
from lograft.runtime.tasks import OwnedSpawn
from lograft.simulation.platter import Platter
from lograft.testing.links import CuttableTransport, Links
from lograft.testing.memory import MemoryDisk, MemoryWorkers

T = TypeVar("T")

#: Limit for calls from other threads; long, because the machine may be under load.
TIMEOUT_SECONDS: Final = 60


class NodeFailed(Exception):
    """A node under test failed by itself, or did not start."""


class NodeThread:
    """A node from its start until it exits."""

    def __init__(
        self,
        config: BrokerConfig,
        request: FormatRequest,
        *,
        platter: Platter,
        links: Links,
        interpose: Callable[[Router], HandlerFactory],
    ) -> None:
        self.node_id = config.node_id
        self._config = config
        self._request = request
        self._platter = platter
        self._links = links
        self._interpose = interpose
        #: The error with which it exited by itself.
        self.failure: BaseException | None = None
        self._is_exit_expected = False
        self._serving: Future[Node] = Future()
        self._unpaused = threading.Event()
        self._unpaused.set()
        self._loop = fastest_loop_factory()()
        self._loop.set_exception_handler(self._on_loop_failure)
        self._stop_requested = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"lograft node {self.node_id}", daemon=True
        )
        self._thread.start()

    # ── called in other threads ──────────────────────────────────────────────────────────────

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait_serving(self) -> Node:
        """Waits until the node serves clients; raises NodeFailed."""
        try:
            return self._serving.result(TIMEOUT_SECONDS)
        except TimeoutError:
            raise NodeFailed(
                f"node {self.node_id} did not start within {TIMEOUT_SECONDS} s"
            ) from None

    def call(self, function: Callable[[Node], Any]) -> Any:
        """Calls a function with the node in the node's thread; awaits its result if it is a
        coroutine."""

        async def run() -> Any:
            result = function(self.wait_serving())
            return await result if asyncio.iscoroutine(result) else result

        node = self.wait_serving()
        assert node is not None
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT_SECONDS)

    def post(self, function: Callable[[], object]) -> None:
        """Calls a function in the node's thread; does nothing if the node has exited."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            assert self._loop.is_closed()

    def links_changed(self) -> None:
        self.post(lambda: self._transport.links_changed())

    def pause(self) -> None:
        """Acts like SIGSTOP."""
        self._unpaused.clear()
        self.post(self._unpaused.wait)

    def resume(self) -> None:
        """Acts like SIGCONT."""
        self._unpaused.set()

    def stop(self) -> None:
        """Acts like SIGTERM; returns when the node has exited."""
        self._is_exit_expected = True
        self.post(self._stop_requested.set)
        self._wait_exit()

    def kill(self) -> None:
        """Acts like SIGKILL."""
        self._is_exit_expected = True
        self.post(self._exit_now)
        self._wait_exit()

    def _wait_exit(self) -> None:
        self._unpaused.set()
        self.wait_ended()

    def wait_ended(self) -> None:
        """Waits until the node has exited; raises NodeFailed if it does not."""
        self._thread.join(TIMEOUT_SECONDS)
        if self._thread.is_alive():
            raise NodeFailed(f"node {self.node_id} did not exit within {TIMEOUT_SECONDS} s")

    # ── called in the node's thread ──────────────────────────────────────────────────────────

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._disk = MemoryDisk(self._platter, wall_ms=SystemClock().wall_ms)
        self._transport = CuttableTransport(self._links, self.node_id)
        self._spawn = OwnedSpawn(self._on_failure)
        main = self._loop.create_task(self._main(), name="main")
        main.add_done_callback(self._on_main_done)
        try:
            self._loop.run_forever()
        finally:
            if not main.done():
                self._close_tasks()
            asyncio.set_event_loop(None)
            self._loop.close()
            if not self._serving.done():
                failure = NodeFailed(f"node {self.node_id} did not start")
                failure.__cause__ = self.failure
                self._serving.set_exception(failure)

    async def _main(self) -> None:
        runtime = Runtime(
            clock=SystemClock(),
            randomness=SystemRandomness(),
            disk=self._disk,
            workers=MemoryWorkers(),
            transport=self._transport,
            spawn=self._spawn,
        )
        if not self._disk.exists(f"{self._config.metadata_log_dir}/meta.properties"):
            format_directories(
                self._disk,
                self._config,
                self._request,
                randomness=runtime.randomness,
                now_ms=runtime.clock.wall_ms(),
            )
            self._disk.fsync_dir("/")
        node = Node(self._config, runtime, halt=self._on_halt, interpose=self._interpose)
        await node.start()
        self._serving.set_result(node)
        await self._stop_requested.wait()
        await node.stop()
        await self._spawn.close()

    def _on_main_done(self, main: "asyncio.Task[None]") -> None:
        if not main.cancelled() and (error := main.exception()) is not None:
            self._on_failure(error)
        self._loop.stop()

    def _on_halt(self, reason: str) -> None:
        self._on_failure(NodeFailed(f"node {self.node_id} halted: {reason}"))

    def _on_failure(self, error: BaseException) -> None:
        if not self._is_exit_expected:
            self._is_exit_expected = True
            self.failure = error
            self._loop.call_soon(self._exit_now)

    def _on_loop_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._disk.is_dead:
            return
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._on_failure(error)
        else:
            loop.default_exception_handler(context)

    def _exit_now(self) -> None:
        # The remaining callbacks of this iteration of the loop must not write to the disk.
        self._disk.kill()
        self._transport.abort()
        self._loop.stop()

    def _close_tasks(self) -> None:
        """Closes the coroutines of a killed node, so that the garbage collector does not resume
        them."""
        for task in asyncio.all_tasks(self._loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            try:
                task.get_coro().close()
            except BaseException:
                # The cleanup of a coroutine may fail, since the disk and the sockets are gone.
                pass
