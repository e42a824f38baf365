"""Fetch sessions: what is said again, what is not, and what ends them."""

from uuid import UUID

from lograft.client.consuming.fetch_sessions import (
    FIRST_EPOCH,
    LAST_EPOCH,
    NO_SESSION,
    FetchSession,
    Wanted,
)
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID

A, B, C = (TopicPartition(name, 0) for name in "abc")
ID, OTHER = UUID(int=7), UUID(int=8)


def at(offset: int, topic_id: UUID = ID) -> Wanted:
    return Wanted(topic_id, offset, 0, 1_000)


def test_only_news_are_said() -> None:
    session = FetchSession()
    first = session.plan({A: at(0), B: at(0)})
    assert (first.session_id, first.epoch) == (NO_SESSION, FIRST_EPOCH)
    assert set(first.send) == {A, B}
    session.answered(99)
    second = session.plan({A: at(5), B: at(0)})
    assert (second.session_id, second.epoch, set(second.send), second.forget) == (99, 1, {A}, {})
    session.answered(99)
    third = session.plan({A: at(5), C: at(0)})
    assert (third.epoch, set(third.send), third.forget) == (2, {C}, {B: ID})
    session.answered(99)
    fourth = session.plan({A: at(5), B: at(0), C: at(0)})
    assert (set(fourth.send), fourth.forget) == ({B}, {})


def test_a_single_partition_is_read_without_a_session() -> None:
    session = FetchSession()
    for offset in (0, 5):
        plan = session.plan({A: at(offset)})
        assert (plan.session_id, plan.epoch) == (NO_SESSION, LAST_EPOCH)
        assert plan.send == {A: at(offset)}
        session.answered(NO_SESSION)
    assert session.plan({A: at(5), B: at(0)})[:2] == (NO_SESSION, FIRST_EPOCH)
    session.answered(99)
    # The session that is not needed any more is named, so that it goes.
    plan = session.plan({A: at(5)})
    assert (plan.session_id, plan.epoch, plan.send, plan.forget) == (99, LAST_EPOCH, {A: at(5)}, {})
    session.answered(NO_SESSION)
    again = session.plan({A: at(5), B: at(0)})
    assert (again[:2], set(again.send)) == ((NO_SESSION, FIRST_EPOCH), {A, B})


def test_a_topic_made_anew_is_forgotten_and_said_again() -> None:
    session = FetchSession()
    session.plan({A: at(5), B: at(0)})
    session.answered(99)
    plan = session.plan({A: at(0, OTHER), B: at(0)})
    assert (plan.send, plan.forget) == ({A: at(0, OTHER)}, {A: ID})


def test_names_and_ids_are_not_mixed() -> None:
    session = FetchSession()
    assert session.plan({A: at(0), B: at(0)}).uses_ids
    session.answered(99)
    plan = session.plan({A: at(0), B: at(0, ZERO_UUID)})
    assert (plan.uses_ids, plan.session_id, plan.epoch) == (False, 99, FIRST_EPOCH)
    assert set(plan.send) == {A, B}


def test_a_broker_without_room_hears_everything_every_time() -> None:
    session = FetchSession()
    for _ in range(3):
        plan = session.plan({A: at(0), B: at(0)})
        assert (plan.session_id, plan.epoch, set(plan.send)) == (NO_SESSION, FIRST_EPOCH, {A, B})
        session.answered(NO_SESSION)


def test_a_session_that_is_lost_begins_again() -> None:
    session = FetchSession()
    session.plan({A: at(0), B: at(0)})
    session.answered(99)
    session.refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    plan = session.plan({A: at(0), B: at(0)})
    # The broker may still have it: it is named, so that it goes.
    assert (plan.session_id, plan.epoch, set(plan.send)) == (99, FIRST_EPOCH, {A, B})
    session.answered(100)
    session.lost()
    assert session.plan({A: at(0), B: at(0)})[:2] == (100, FIRST_EPOCH)
    session.refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.plan({A: at(0), B: at(0)})[:2] == (NO_SESSION, FIRST_EPOCH)


def test_epochs_go_round() -> None:
    session = FetchSession()
    session.plan({A: at(0), B: at(0)})
    session.answered(99)
    session.epoch = 0x7FFF_FFFF
    session.plan({A: at(1), B: at(0)})
    session.answered(99)
    assert session.epoch == 1
