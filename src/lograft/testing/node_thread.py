"""One node in a thread of its own: a process, as far as anybody can see.

Nothing is shared with other nodes but sockets. So a kill is simple: the loop stops between two
callbacks and never goes on, and what the node has on its disk is all that is left of it.
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

#: For what a node is asked from outside; a machine under load may be slow.
PATIENCE_SECONDS: Final = 60


class NodeFailed(Exception):
    """A node under test ended by itself, or did not start."""


class NodeThread:
    """One life of a node."""

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
        #: Why it ended, if nobody asked it to.
        self.failure: BaseException | None = None
        self._is_asked_to_end = False
        self._serving: Future[Node] = Future()
        self._unpaused = threading.Event()
        self._unpaused.set()
        self._loop = fastest_loop_factory()()
        self._loop.set_exception_handler(self._on_loop_failure)
        self._stop_asked = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"lograft node {self.node_id}", daemon=True
        )
        self._thread.start()

    # ── from other threads ───────────────────────────────────────────────────────────────────

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait_serving(self) -> Node:
        """Raises NodeFailed."""
        try:
            return self._serving.result(PATIENCE_SECONDS)
        except TimeoutError:
            raise NodeFailed(
                f"node {self.node_id} does not serve after {PATIENCE_SECONDS} s"
            ) from None

    def ask(self, question: Callable[[Node], Any]) -> Any:
        """Asks the node something in its own thread; awaits what it answers with, if it must."""

        async def answer() -> Any:
            found = question(self.wait_serving())
            return await found if asyncio.iscoroutine(found) else found

        node = self.wait_serving()
        assert node is not None
        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(PATIENCE_SECONDS)

    def post(self, function: Callable[[], object]) -> None:
        """Something to be done in the node's thread; nothing, if it has ended."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            assert self._loop.is_closed()

    def links_changed(self) -> None:
        self.post(lambda: self._transport.links_changed())

    def pause(self) -> None:
        """SIGSTOP."""
        self._unpaused.clear()
        self.post(self._unpaused.wait)

    def resume(self) -> None:
        """SIGCONT."""
        self._unpaused.set()

    def stop(self) -> None:
        """SIGTERM; returns when the node has ended."""
        self._is_asked_to_end = True
        self.post(self._stop_asked.set)
        self._end()

    def kill(self) -> None:
        """SIGKILL."""
        self._is_asked_to_end = True
        self.post(self._die)
        self._end()

    def _end(self) -> None:
        self._unpaused.set()
        self.wait_ended()

    def wait_ended(self) -> None:
        """Raises NodeFailed if it goes on."""
        self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise NodeFailed(f"node {self.node_id} does not end")

    # ── in the node's thread ─────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._disk = MemoryDisk(self._platter, wall_ms=SystemClock().wall_ms)
        self._transport = CuttableTransport(self._links, self.node_id)
        self._spawn = OwnedSpawn(self._on_failure)
        life = self._loop.create_task(self._live(), name="life")
        life.add_done_callback(self._on_life_ended)
        try:
            self._loop.run_forever()
        finally:
            if not life.done():
                self._bury()
            asyncio.set_event_loop(None)
            self._loop.close()
            if not self._serving.done():
                failure = NodeFailed(f"node {self.node_id} did not start")
                failure.__cause__ = self.failure
                self._serving.set_exception(failure)

    async def _live(self) -> None:
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
        await self._stop_asked.wait()
        await node.stop()
        await self._spawn.close()

    def _on_life_ended(self, life: "asyncio.Task[None]") -> None:
        if not life.cancelled() and (error := life.exception()) is not None:
            self._on_failure(error)
        self._loop.stop()

    def _on_halt(self, reason: str) -> None:
        self._on_failure(NodeFailed(f"node {self.node_id} halted: {reason}"))

    def _on_failure(self, error: BaseException) -> None:
        if not self._is_asked_to_end:
            self._is_asked_to_end = True
            self.failure = error
            self._loop.call_soon(self._die)

    def _on_loop_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._disk.is_dead:
            return
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._on_failure(error)
        else:
            loop.default_exception_handler(context)

    def _die(self) -> None:
        # What still runs in this round of the loop finds a disk that does nothing.
        self._disk.kill()
        self._transport.die()
        self._loop.stop()

    def _bury(self) -> None:
        """Tasks of a dead node end here: none of them may go on when memory is collected."""
        for task in asyncio.all_tasks(self._loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            try:
                task.get_coro().close()
            except BaseException:
                # Whatever they still wanted to do, they cannot.
                pass
