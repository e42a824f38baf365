"""Finds the names that match patterns: immediately if that is fast, otherwise in pieces.

A pattern that is slow on a single name is slow on all topics of a cluster, and so are the patterns
of a thousand members. They must not delay other clients: a decision that needs such matching raises
NeedsLongWork, and finds the results when it is repeated.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from lograft.coordination.types import NeedsLongWork
from lograft.model.patterns import InvalidPattern, compile_pattern

#: Matching steps, counted per character and pattern: a few milliseconds at worst, usually less.
STEPS_AT_ONCE: Final = 1_000_000
STEPS_PER_PIECE: Final = 250_000
#: The cost of compiling one pattern.
STEPS_TO_COMPILE: Final = 100_000


class Matched(NamedTuple):
    names: set[str]
    #: Version of the names that were matched.
    version: int


class PatternMatching:
    def __init__(self) -> None:
        #: By pattern. Waiting requests hold references to their searches; others are discarded.
        self._searches: WeakValueDictionary[str, Search] = WeakValueDictionary()

    def match_names(
        self, patterns: Sequence[str], names: Collection[str], version: int
    ) -> dict[str, Matched]:
        """For each pattern, the names that match as a whole. A slow pattern is matched against the
        names that existed when its search started. Raises InvalidPattern, NeedsLongWork."""
        found: dict[str, Matched] = {}
        unfinished: list[Search] = []
        snapshot: tuple[str, ...] = ()
        letters = sum(map(len, names))
        steps_left = STEPS_AT_ONCE
        for text in patterns:
            search = self._searches.get(text)
            if search is None:
                if steps_left > 0:
                    matches, steps = compile_pattern(text)
                    steps_left -= STEPS_TO_COMPILE + steps * letters
                    if steps_left >= 0:
                        found[text] = Matched({name for name in names if matches(name)}, version)
                        continue
                # Shared, so that a thousand patterns do not need a thousand copies.
                snapshot = snapshot or tuple(names)
                search = self._searches[text] = Search(text, snapshot, version)
            if not search.is_done:
                unfinished.append(search)
            elif search.refused is not None:
                raise search.refused
            else:
                found[text] = Matched(set(search.found), search.version)
        if unfinished:
            pieces = (piece for search in unfinished for piece in search.pieces())
            raise NeedsLongWork(pieces, unfinished)
        return found


class Search:
    __slots__ = ("__weakref__", "_left", "_pattern", "found", "is_done", "refused", "version")

    def __init__(self, pattern: str, names: Sequence[str], version: int) -> None:
        self.version = version
        self.found: list[str] = []
        self.is_done = False
        #: Set if the pattern is invalid.
        self.refused: InvalidPattern | None = None
        self._pattern = pattern
        self._left = iter(names)

    def pieces(self) -> Iterator[None]:
        """Continues the search, which several requests may share. The pattern is compiled only
        here, so that waiting searches do not hold compiled patterns with their caches."""
        if self.is_done:
            return
        try:
            matches, steps = compile_pattern(self._pattern)
        except InvalidPattern as error:
            self.refused = error
            self.is_done = True
            return
        done = STEPS_TO_COMPILE
        for name in self._left:
            if matches(name):
                self.found.append(name)
            done += steps * len(name)
            if done > STEPS_PER_PIECE:
                done = 0
                yield
        self.is_done = True
        yield
