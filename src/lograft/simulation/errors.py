"""What can go wrong in a simulated run, apart from the code under test being wrong."""


class SimulationFailed(Exception):
    """The run broke a rule; the message says which."""


class Deadlock(SimulationFailed):
    """Nothing can ever happen again, and the main task has not ended."""


class StepLimit(SimulationFailed):
    """The run went on past every bound: most likely a loop that never waits."""


class FenceBroken(SimulationFailed):
    """Code under test reached for a thread, a socket, a process or a signal past the seams."""


class InvariantViolated(SimulationFailed):
    """A checker's verdict. `invariant` is the id of reliability's table, D1 and so on."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class SimulatedCrash(BaseException):
    """The process dies here. Not an Exception: no handler of the code under test may survive it."""
