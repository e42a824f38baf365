import pytest

from lograft.consensus.errors import IllegalTransition
from lograft.consensus.roles import NEXT_ROLE, Cause, Role, next_role


def test_every_role_can_be_reached_and_left() -> None:
    assert {role for role, _ in NEXT_ROLE} == set(Role)
    # RESIGNED and the initial role: a restart derives the role from the hard state.
    assert set(NEXT_ROLE.values()) == set(Role)


def test_a_higher_epoch_ends_every_role() -> None:
    for role in Role:
        assert next_role(role, Cause.HIGHER_EPOCH) is Role.UNATTACHED


def test_only_a_candidate_becomes_leader() -> None:
    makers = [move for move, role in NEXT_ROLE.items() if role is Role.LEADER]
    assert makers == [(Role.CANDIDATE, Cause.VOTES_WON)]


def test_transition_outside_the_table_raises_an_error_with_role_and_cause() -> None:
    with pytest.raises(IllegalTransition, match="role follower has no transition for: votes won"):
        next_role(Role.FOLLOWER, Cause.VOTES_WON)
