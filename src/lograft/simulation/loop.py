"""A deterministic asyncio event loop.

Time is an integer of nanoseconds that advances to the next timer when no callback is ready. Each
step runs one callback, drawn from all that are ready, so every legal interleaving can occur. If no
callback is ready and no timer is set, the run raises `Deadlock`.

The loop extends AbstractEventLoop instead of BaseEventLoop, so that unsupported features (sockets,
readers, subprocesses, signals, executors) raise NotImplementedError. `fence.py` prevents code from
bypassing the loop.
"""

import asyncio
import contextvars
import gc
import heapq
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, TypeVarTuple

from lograft.simulation.errors import Deadlock, FenceBroken, SimulatedCrash, StepLimit
from lograft.simulation.policies import Policy, UniformPolicy
from lograft.simulation.trace import Streams, Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

if TYPE_CHECKING:
    # typeshed declares all methods of AbstractEventLoop abstract; at run time they raise.
    Base = asyncio.BaseEventLoop
else:
    Base = asyncio.AbstractEventLoop

#: Virtual time of a callback, so that code that polls the clock makes progress.
STEP_NS: Final = 1_000
STEPS_MAX: Final = 50_000_000
#: Garbage is collected only at fixed steps, so that finalisers run at the same point of every run.
STEPS_PER_COLLECTION: Final = 100_000
TASKS_BEFORE_SWEEP: Final = 1_000


class Process:
    """A simulated process.

    Callbacks and tasks created by a process's code inherit it through their context; the loop drops
    those of a dead process and holds back those of a paused one.
    """

    __slots__ = ("alive", "held", "is_paused", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.is_paused = False
        #: Callbacks that became ready during a pause, in order.
        self.held: list[Any] = []

    def kill(self) -> None:
        self.alive = False
        self.is_paused = False
        self.held.clear()

    def pause(self) -> None:
        """SIGSTOP: time advances and sockets receive bytes, but no callback runs."""
        self.is_paused = True


CURRENT_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar(
    "lograft_simulated_process", default=None
)


class SimulatedTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks have a deterministic order."""

    number: int
    process: Process | None

    def __new__(cls, *args: Any, loop: "SimulatedLoop", **kwargs: Any) -> "SimulatedTask[T]":
        task = super().__new__(cls)
        task.number = loop.next_number()
        return task

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedFuture(asyncio.Future[T]):
    number: int

    def __new__(cls, *, loop: "SimulatedLoop") -> "SimulatedFuture[T]":
        future = super().__new__(cls)
        future.number = loop.next_number()
        return future

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Handle(asyncio.Handle):
    __slots__ = ("owner", "process")

    owner: object
    process: Process | None


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("owner", "process")

    owner: object
    process: Process | None


class SimulatedLoop(Base):
    def __init__(
        self,
        seed: int | str = 0,
        *,
        streams: Streams | None = None,
        trace: Trace | None = None,
        policy: Policy | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.streams = streams or Streams(seed)
        self.trace = trace or Trace()
        self.now_ns = 0
        self.steps = 0
        #: Contexts of unhandled exceptions. A run that has any has failed, so tests must check
        #: this.
        self.unhandled: list[dict[str, Any]] = []
        #: Called when all callbacks of an instant have run, before time advances.
        self.on_instant_end: Callable[[], None] | None = None
        #: Processes that ran callbacks since an observer last cleared this.
        self.touched: dict[Process, None] = {}
        self._policy = policy or UniformPolicy(self.streams.stream("schedule"))
        self._steps_max = steps_max
        self._ready: list[_Handle | _TimerHandle] = []
        self._timers: list[tuple[int, int, _TimerHandle]] = []
        self._numbers = 0
        self._running = False
        self._stopping = False
        self._closed = False
        #: All tasks in order of creation; asyncio itself holds only weak references.
        self._tasks: dict[SimulatedTask[Any], None] = {}
        self._tasks_max = TASKS_BEFORE_SWEEP

    # -- interface of asyncio ----------------------------------------------------------------

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def time(self) -> float:
        return self.now_ns / 1e9

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Debug mode would time callbacks with the real clock."""

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> asyncio.Future[Any]:
        return SimulatedFuture(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: SimulatedTask[T] = SimulatedTask(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        if name is None:
            task.set_name(f"task-{task.number}")
        task.process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        self._tasks[task] = None
        if len(self._tasks) >= self._tasks_max:
            self._tasks = {known: None for known in self._tasks if not known.done()}
            self._tasks_max = 2 * len(self._tasks) + TASKS_BEFORE_SWEEP
        return task

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        handle.process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        handle.owner = getattr(callback, "__self__", None)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        # There is only one thread, but libraries call this from the loop as well.
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._call_at_ns(self.now_ns + max(0, round(delay * 1e9)), callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._call_at_ns(round(when * 1e9), callback, args, context)

    def call_later_ns(
        self,
        delay_ns: int,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> None:
        self._call_at_ns(self.now_ns + delay_ns, callback, args, context)

    def _call_at_ns(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when_ns / 1e9, callback, args, self, context)
        handle.process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        handle.owner = getattr(callback, "__self__", None)
        heapq.heappush(self._timers, (when_ns, self.next_number(), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio; cancelled timers are skipped when they expire."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        culprit = context.get("task") or context.get("future") or context.get("handle")
        process = getattr(culprit, "process", None) or CURRENT_PROCESS.get()
        if self._closed or isinstance(context.get("exception"), SimulatedCrash):
            return
        if process is None or process.alive:
            self.unhandled.append(context)
            self.trace.event("unhandled", str(context.get("message", "")))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        raise FenceBroken("run_in_executor: use the Workers seam")

    async def shutdown_asyncgens(self) -> None: ...

    async def shutdown_default_executor(self) -> None: ...

    # -- running -----------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping = True

    def run_forever(self) -> None:
        if self._running or self._closed:
            raise RuntimeError("the loop is running or closed")
        collects = gc.isenabled()
        gc.disable()
        self._running = True
        self._stopping = False
        asyncio.events._set_running_loop(self)
        try:
            while not self._stopping:
                self._step()
        finally:
            asyncio.events._set_running_loop(None)
            self._running = False
            if collects:
                gc.enable()

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        # `ensure_future` accepts every awaitable, but typeshed lists them individually.
        main: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        main.add_done_callback(self._on_main_done)
        try:
            self.run_forever()
        finally:
            main.remove_done_callback(self._on_main_done)
        if not main.done():
            raise RuntimeError("the loop was stopped before its main task completed")
        return main.result()

    def _on_main_done(self, _: asyncio.Future[Any]) -> None:
        self.stop()

    def _step(self) -> None:
        ready = self._ready
        timers = self._timers
        if not ready:
            if self.on_instant_end is not None:
                self.on_instant_end()
            while timers and self._is_dropped(timers[0][2]):
                heapq.heappop(timers)
            if not timers:
                raise Deadlock(self._describe_deadlock())
            self.now_ns = max(self.now_ns, timers[0][0])
        now_ns = self.now_ns
        while timers and timers[0][0] <= now_ns:
            ready.append(heapq.heappop(timers)[2])
        count = len(ready)
        index = self._policy.draw(ready) if count > 1 else 0
        handle = ready.pop(index)
        if self._is_dropped(handle):
            return
        process = handle.process
        if process is not None:
            if process.is_paused:
                process.held.append(handle)
                return
            self.touched[process] = None
        self.steps += 1
        if self.steps > self._steps_max:
            raise StepLimit(f"the run exceeded {self._steps_max} steps at {now_ns} ns")
        if self.steps % STEPS_PER_COLLECTION == 0:
            gc.collect()
        self.trace.step(f"{now_ns} {index}/{count}")
        self.now_ns = now_ns + STEP_NS
        handle._run()

    def resume(self, process: Process) -> None:
        process.is_paused = False
        held, process.held = process.held, []
        self._ready += held

    @staticmethod
    def _is_dropped(handle: _Handle | _TimerHandle) -> bool:
        process = handle.process
        return handle.cancelled() or (process is not None and not process.alive)

    def _describe_deadlock(self) -> str:
        names = [task.get_name() for task in self._tasks if not task.done()]
        return "no callback is ready and no timer is set; waiting tasks: " + ", ".join(names)

    def close(self) -> None:
        """Discards all callbacks and tasks, without warnings: a crash leaves many pending tasks."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for task in list(self._tasks):
            _discard_task(task)
        self._tasks.clear()


def _close_unstarted(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, tuple):
            _close_unstarted(value)
        elif (
            inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED
        ):
            if value.cr_frame is not None:
                _close_unstarted(list(value.cr_frame.f_locals.values()))
            value.close()


def _discard_task(task: asyncio.Task[Any]) -> None:
    """Closes a task of a dead process. Its `finally` blocks run, but every disk access raises."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    try:
        assert coroutine is not None
        if inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
            # A coroutine that never started may refer to others, which would warn.
            _close_unstarted(list(coroutine.cr_frame.f_locals.values()))
        coroutine.close()
    except BaseException:  # exceptions of a dead process are irrelevant
        pass
