from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.broker.partitions.lifecycle import (
    HELD,
    NEXT_STATE,
    Cause,
    IllegalTransition,
    PartitionState,
    next_state,
)

State = PartitionState
ENDS = {State.OFFLINE, State.DELETED}


@given(st.sampled_from(State), st.sampled_from(Cause))
def test_a_step_is_in_the_table_or_names_both_values(state: State, cause: Cause) -> None:
    if (state, cause) in NEXT_STATE:
        assert next_state(state, cause) is NEXT_STATE[state, cause]
        return
    with pytest.raises(IllegalTransition) as raised:
        next_state(state, cause)
    assert state.value in str(raised.value)
    assert cause.value in str(raised.value)


@given(st.sampled_from(State), st.sampled_from(Cause))
def test_what_is_over_stays_over(state: State, cause: Cause) -> None:
    after = NEXT_STATE.get((state, cause))
    if state is State.DELETED:
        assert after in {State.DELETED, None}
    if state is State.OFFLINE:
        assert after in {*ENDS, None}
    if after is State.OPENING:
        pytest.fail("nothing leads back to opening")


@pytest.mark.parametrize("state", State)
def test_every_state_ends_with_a_failure_or_a_deletion(state: State) -> None:
    if state is not State.DELETED:
        assert next_state(state, Cause.DELETED) is State.DELETED
        assert next_state(state, Cause.FAILED) is State.OFFLINE


@given(st.lists(st.sampled_from(Cause), max_size=30))
def test_a_life_holds_the_log_while_something_is_under_way(causes: list[Cause]) -> None:
    """Tracks a move and a truncation beside the table: the log is held exactly while one of them is
    in progress, in any order."""
    state = State.OPENING
    moves = cuts = False
    for cause in causes:
        if (state, cause) not in NEXT_STATE:
            continue
        state = next_state(state, cause)
        moves = (moves or cause is Cause.MOVE_BEGUN) and cause is not Cause.MOVE_ENDED
        cuts = (cuts or cause is Cause.TRUNCATION_BEGUN) and cause is not Cause.TRUNCATION_ENDED
        if state not in ENDS:
            assert (state in HELD) == (moves or cuts)
            assert (state in {State.MOVING, State.MOVING_BEFORE_CUT}) == moves


def test_the_documentation_draws_this_table() -> None:
    text = (Path(__file__).parents[4] / "docs" / "internals" / "broker.md").read_text()
    lines = [f"| state | {' | '.join(cause.value for cause in Cause)} |"]
    lines.append("|---" * (len(Cause) + 1) + "|")
    for state in State:
        found = [NEXT_STATE.get((state, cause)) for cause in Cause]
        cells = ["–" if after is None else after.value for after in found]
        lines.append(f"| {state.value} | {' | '.join(cells)} |")
    assert "\n".join(lines) in text


def test_every_state_can_be_reached() -> None:
    reached = {State.OPENING}
    for _ in State:
        reached |= {after for (before, _), after in NEXT_STATE.items() if before in reached}
    assert reached == set(State)
