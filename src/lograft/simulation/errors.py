"""Errors of a simulated run."""


class SimulationFailed(Exception):
    """The run violated a rule, which the message names."""


class Deadlock(SimulationFailed):
    """No callback is ready and no timer is set, but the main task has not completed."""


class StepLimit(SimulationFailed):
    """The run exceeded its number of steps, most likely because of a loop that never waits."""


class FenceBroken(SimulationFailed):
    """Code under test bypassed the seams: it used a thread, socket, process or signal."""


class InvariantViolated(SimulationFailed):
    """A checker found a violation. `invariant` is an ID of the table in docs/reliability.md, like
    D1."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class SimulatedCrash(BaseException):
    """The simulated process dies. Not an Exception, so that no handler of the code under test
    catches it."""
