"""How a client that awaits gets a face that blocks: each method of the face is made from the
client's own, and keeps its parameters, types and documentation.

    class Producer(Face[asynchronous.Producer]):
        flush = awaited(asynchronous.Producer.flush)
        metrics = called(asynchronous.Producer.metrics)
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


class Face(Generic[C]):
    """A client in a loop of its own."""

    def __init__(self, client: C, what: str) -> None:
        self._client = client
        self._what = what
        self._loop = BackgroundLoop(f"lograft {what}")

    def start(self) -> None:
        """Opens the client; `with` does it too."""
        if self._loop.is_started:
            raise WrongUse(f"the {self._what} has been started already")
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
        """Waits for something in the client's loop."""
        self.check_waiter(work)
        try:
            return self._loop.run(work)
        except CancelledError:
            raise Closed(f"the {self._what} was closed meanwhile") from None

    def call(self, function: Callable[[], R]) -> R:
        """Calls something in the client's loop."""
        self.check_caller(None)
        return self._loop.call(function)

    def post(self, function: Callable[[], object]) -> None:
        """Something to be done in the client's loop, some time soon."""
        self._loop.post(function)

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """The last work of the client, which closes it."""
        if not self._loop.is_running:
            work.close()
            return
        self.check_waiter(work)  # A callback that may not close the client must not end its loop.
        try:
            Face.run(self, work)
        finally:
            self._loop.close()

    def check_caller(self, work: Coroutine[Any, Any, Any] | None) -> None:
        """Raises WrongUse when the client cannot be called, or not from here; the work is dropped
        then."""
        problem = self.obstacle()
        if problem is not None:
            if work is not None:
                work.close()
            raise problem

    def check_waiter(self, work: Coroutine[Any, Any, Any]) -> None:
        """Likewise, for what waits: a callback would wait for its own thread."""
        self.check_caller(work)
        if self._loop.is_own_thread:
            work.close()
            raise WrongUse(
                f"a callback runs in the {self._what}'s thread and cannot wait for it: hand the"
                " work to another thread"
            )

    def obstacle(self) -> WrongUse | None:
        if not self._loop.is_started:
            return WrongUse(f"the {self._what} is not open: use `with`, or call start()")
        if not self._loop.is_running:
            return Closed(f"the {self._what} is closed")
        return None


class OwnedFace(Face[C]):
    """Belongs to the thread that opened it, and says so to others."""

    def __init__(self, client: C, what: str) -> None:
        super().__init__(client, what)
        self._owner = ""

    def start(self) -> None:
        self._owner = calling_thread()
        super().start()

    def obstacle(self) -> WrongUse | None:
        found = super().obstacle()
        if found is None and (caller := calling_thread()) != self._owner:
            found = WrongUse(
                f"the {self._what} belongs to thread {self._owner}, and this is thread {caller}:"
                " give each thread one of its own"
            )
        return found


class Method(Generic[P, R]):
    """A method of a face. mypy knows what it is bound to by `__get__`; at run time it is a plain
    function with the name and documentation of the client's."""

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, face: None, kind: type[Any]) -> Self: ...
    @overload
    def __get__(self, face: object, kind: type[Any]) -> Callable[P, R]: ...
    def __get__(self, face: object | None, kind: type[Any]) -> Self | Callable[P, R]:
        return self if face is None else MethodType(self._function, face)


@overload
def awaited(source: Callable[Concatenate[C, P], Coroutine[Any, Any, R]]) -> Method[P, R]: ...
@overload
def awaited(
    source: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], into: Callable[[Face[C], R], T]
) -> Method[P, T]: ...
def awaited(
    source: Callable[Concatenate[C, P], Coroutine[Any, Any, Any]],
    into: Callable[[Face[C], Any], Any] | None = None,
) -> Method[P, Any]:
    """Waits for a coroutine of the client; `into` makes something for this thread of what it
    returns."""

    @wraps(source)
    def method(face: Face[C], /, *args: P.args, **keywords: P.kwargs) -> Any:
        result = face.run(source(face._client, *args, **keywords))
        return result if into is None else into(face, result)

    return Method(method)


@overload
def called(source: Callable[Concatenate[C, P], R]) -> Method[P, R]: ...
@overload
def called(
    source: Callable[Concatenate[C, P], R], into: Callable[[Face[C], R], T]
) -> Method[P, T]: ...
def called(
    source: Callable[Concatenate[C, P], Any], into: Callable[[Face[C], Any], Any] | None = None
) -> Method[P, Any]:
    """Calls a method of the client that does not wait."""

    @wraps(source)
    def method(face: Face[C], /, *args: P.args, **keywords: P.kwargs) -> Any:
        result = face.call(lambda: source(face._client, *args, **keywords))
        return result if into is None else into(face, result)

    return Method(method)


def entered(
    source: Callable[Concatenate[C, P], AbstractAsyncContextManager[R]],
) -> Method[P, AbstractContextManager[R]]:
    """`with` for what the client offers to `async with`."""

    @wraps(source)
    def method(face: Face[C], /, *args: P.args, **keywords: P.kwargs) -> AbstractContextManager[R]:
        return _Entered(face, source(face._client, *args, **keywords))

    return Method(method)


class _Entered(AbstractContextManager[R]):
    def __init__(self, face: Face[Any], inner: AbstractAsyncContextManager[R]) -> None:
        self._face = face
        self._inner = inner

    def __enter__(self) -> R:
        async def enter() -> R:
            return await self._inner.__aenter__()

        return self._face.run(enter())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        async def leave() -> bool | None:
            return await self._inner.__aexit__(kind, error, trace)

        return self._face.run(leave())
