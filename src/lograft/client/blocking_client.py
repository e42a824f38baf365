"""Builds blocking clients from asynchronous ones. Each blocking method is derived from a method
of the asynchronous client, and keeps its parameters, types and documentation.

    class Producer(BlockingClient[asynchronous.Producer]):
        flush = blocking_method(asynchronous.Producer.flush)
        metrics = direct_method(asynchronous.Producer.metrics)
"""

from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from types import MethodType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from lograft.client.errors import Closed, WrongUse
from lograft.runtime.background_loop import BackgroundLoop, calling_thread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Client(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)


class BlockingClient(Generic[C]):
    """An asynchronous client that runs in an event loop in a background thread."""

    def __init__(self, client: C, kind: str) -> None:
        """`kind`: the kind of client, for error messages and the name of the thread."""
        self._client = client
        self._kind = kind
        self._loop = BackgroundLoop(f"lograft {kind}")

    def start(self) -> None:
        """Opens the client. `with` calls it."""
        if self._loop.is_started:
            raise WrongUse(f"the {self._kind} has been started already")
        self._loop.start()
        self.run(self._client.start())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.finish(self._client.close())

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine in the client's loop and returns its result."""
        self.check_may_wait(work)
        try:
            return self._loop.run(work)
        except CancelledError:
            raise Closed(f"the {self._kind} was closed during the call") from None

    def call(self, function: Callable[[], R]) -> R:
        """Calls a function in the client's loop and returns its result."""
        self.check_usable(None)
        return self._loop.call(function)

    def post(self, function: Callable[[], object]) -> None:
        """Schedules a call in the client's loop, without waiting for it."""
        self._loop.post(function)

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the coroutine that closes the client, then stops the loop."""
        if not self._loop.is_running:
            work.close()
            return
        self.check_may_wait(work)  # A callback, which may not close the client, must not stop it.
        try:
            BlockingClient.run(self, work)
        finally:
            self._loop.close()

    def check_usable(self, work: Coroutine[Any, Any, Any] | None) -> None:
        """Raises WrongUse if the client cannot be called, or not from this thread. Closes the
        coroutine in that case."""
        error = self.usage_error()
        if error is not None:
            if work is not None:
                work.close()
            raise error

    def check_may_wait(self, work: Coroutine[Any, Any, Any]) -> None:
        """Like `check_usable`, and raises WrongUse in a callback, which would wait for its own
        thread."""
        self.check_usable(work)
        if self._loop.is_own_thread:
            work.close()
            raise WrongUse(
                f"a callback runs in the {self._kind}'s thread and cannot block it: do the work in"
                " another thread"
            )

    def usage_error(self) -> WrongUse | None:
        if not self._loop.is_started:
            return WrongUse(f"the {self._kind} is not open: use `with`, or call start()")
        if not self._loop.is_running:
            return Closed(f"the {self._kind} is closed")
        return None


class SingleThreadClient(BlockingClient[C]):
    """A client that only the thread that opened it may use. Raises WrongUse in other threads."""

    def __init__(self, client: C, kind: str) -> None:
        super().__init__(client, kind)
        self._owner = ""

    def start(self) -> None:
        self._owner = calling_thread()
        super().start()

    def usage_error(self) -> WrongUse | None:
        error = super().usage_error()
        if error is None and (caller := calling_thread()) != self._owner:
            error = WrongUse(
                f"the {self._kind} belongs to thread {self._owner}, but thread {caller} called it:"
                f" open a {self._kind} in each thread"
            )
        return error


class Method(Generic[P, R]):
    """A method of a blocking client. For mypy, `__get__` describes how it is bound; at run time it
    is a plain function with the name and documentation of the asynchronous method."""

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, client: None, kind: type[Any]) -> Self: ...
    @overload
    def __get__(self, client: object, kind: type[Any]) -> Callable[P, R]: ...
    def __get__(self, client: object | None, kind: type[Any]) -> Self | Callable[P, R]:
        return self if client is None else MethodType(self._function, client)


@overload
def blocking_method(
    source: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Method[P, R]: ...
@overload
def blocking_method(
    source: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
    convert: Callable[[BlockingClient[C], R], T],
) -> Method[P, T]: ...
def blocking_method(
    source: Callable[Concatenate[C, P], Coroutine[Any, Any, Any]],
    convert: Callable[[BlockingClient[C], Any], Any] | None = None,
) -> Method[P, Any]:
    """Returns a method that runs a coroutine method of the client and waits for its result.
    `convert` turns the result into an object that the calling thread may use."""

    @wraps(source)
    def method(client: BlockingClient[C], /, *args: P.args, **keywords: P.kwargs) -> Any:
        result = client.run(source(client._client, *args, **keywords))
        return result if convert is None else convert(client, result)

    return Method(method)


@overload
def direct_method(source: Callable[Concatenate[C, P], R]) -> Method[P, R]: ...
@overload
def direct_method(
    source: Callable[Concatenate[C, P], R], convert: Callable[[BlockingClient[C], R], T]
) -> Method[P, T]: ...
def direct_method(
    source: Callable[Concatenate[C, P], Any],
    convert: Callable[[BlockingClient[C], Any], Any] | None = None,
) -> Method[P, Any]:
    """Returns a method that calls a synchronous method of the client in the client's loop."""

    @wraps(source)
    def method(client: BlockingClient[C], /, *args: P.args, **keywords: P.kwargs) -> Any:
        result = client.call(lambda: source(client._client, *args, **keywords))
        return result if convert is None else convert(client, result)

    return Method(method)


def context_method(
    source: Callable[Concatenate[C, P], AbstractAsyncContextManager[R]],
) -> Method[P, AbstractContextManager[R]]:
    """Returns a method whose result is used with `with`, where the client's is used with
    `async with`."""

    @wraps(source)
    def method(
        client: BlockingClient[C], /, *args: P.args, **keywords: P.kwargs
    ) -> AbstractContextManager[R]:
        return _BlockingContext(client, source(client._client, *args, **keywords))

    return Method(method)


class _BlockingContext(AbstractContextManager[R]):
    def __init__(self, client: BlockingClient[Any], inner: AbstractAsyncContextManager[R]) -> None:
        self._client = client
        self._inner = inner

    def __enter__(self) -> R:
        async def enter() -> R:
            return await self._inner.__aenter__()

        return self._client.run(enter())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        async def leave() -> bool | None:
            return await self._inner.__aexit__(kind, error, trace)

        return self._client.run(leave())
