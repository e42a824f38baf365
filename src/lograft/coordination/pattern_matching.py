"""Which of many names patterns match: at once where that is quick, else in pieces.

A pattern that takes long for a single name takes long for all topics of a cluster, and so do the
patterns of a thousand members. Whoever sends them must not keep the others waiting: a decision that
needs it raises TakesLong, and finds what was matched meanwhile when it is asked again.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from lograft.coordination.types import TakesLong
from lograft.model.patterns import NoPattern, compiled

#: Of patterns, for each letter: some milliseconds at worst, mostly much less.
STEPS_AT_ONCE: Final = 1_000_000
STEPS_PER_PIECE: Final = 250_000
#: What it takes to compile one.
STEPS_TO_COMPILE: Final = 100_000


class Matched(NamedTuple):
    names: set[str]
    #: Of the names that were looked at.
    version: int


class PatternMatching:
    def __init__(self) -> None:
        #: By pattern. Whoever waits for one holds it, so nothing stays of what nobody waits for.
        self._searches: WeakValueDictionary[str, Search] = WeakValueDictionary()

    def among(
        self, patterns: Sequence[str], names: Collection[str], version: int
    ) -> dict[str, Matched]:
        """For each pattern the names that match as a whole; where that took long, of the names that
        were there when it began. Raises NoPattern, TakesLong."""
        found: dict[str, Matched] = {}
        unfinished: list[Search] = []
        snapshot: tuple[str, ...] = ()
        letters = sum(map(len, names))
        steps_left = STEPS_AT_ONCE
        for text in patterns:
            search = self._searches.get(text)
            if search is None:
                if steps_left > 0:
                    matches, steps = compiled(text)
                    steps_left -= STEPS_TO_COMPILE + steps * letters
                    if steps_left >= 0:
                        found[text] = Matched({name for name in names if matches(name)}, version)
                        continue
                # One for all: a thousand patterns need no thousand copies.
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
            raise TakesLong(pieces, unfinished)
        return found


class Search:
    __slots__ = ("__weakref__", "_left", "_pattern", "found", "is_done", "refused", "version")

    def __init__(self, pattern: str, names: Sequence[str], version: int) -> None:
        self.version = version
        self.found: list[str] = []
        self.is_done = False
        #: It is no pattern.
        self.refused: NoPattern | None = None
        self._pattern = pattern
        self._left = iter(names)

    def pieces(self) -> Iterator[None]:
        """Goes on where it stands, whoever brought it there. Compiled here: of those that wait for
        their turn none holds a program and what that remembers."""
        if self.is_done:
            return
        try:
            matches, steps = compiled(self._pattern)
        except NoPattern as error:
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
