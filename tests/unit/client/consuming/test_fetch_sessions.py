"""Fetch sessions: the content of incremental requests, and what starts a new session."""

from uuid import UUID

from lograft.client.consuming.fetch_sessions import (
    FIRST_EPOCH,
    LAST_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionFetch,
)
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID

A, B, C = (TopicPartition(name, 0) for name in "abc")
ID, OTHER = UUID(int=7), UUID(int=8)


def at(offset: int, topic_id: UUID = ID) -> PartitionFetch:
    return PartitionFetch(topic_id, offset, 0, 1_000)


def test_requests_contain_only_changes() -> None:
    session = FetchSession()
    first = session.plan({A: at(0), B: at(0)})
    assert (first.session_id, first.epoch) == (NO_SESSION, FIRST_EPOCH)
    assert set(first.send) == {A, B}
    session.handle_response(99)
    second = session.plan({A: at(5), B: at(0)})
    assert (second.session_id, second.epoch, set(second.send), second.forget) == (99, 1, {A}, {})
    session.handle_response(99)
    third = session.plan({A: at(5), C: at(0)})
    assert (third.epoch, set(third.send), third.forget) == (2, {C}, {B: ID})
    session.handle_response(99)
    fourth = session.plan({A: at(5), B: at(0), C: at(0)})
    assert (set(fourth.send), fourth.forget) == ({B}, {})


def test_a_single_partition_is_fetched_without_a_session() -> None:
    session = FetchSession()
    for offset in (0, 5):
        plan = session.plan({A: at(offset)})
        assert (plan.session_id, plan.epoch) == (NO_SESSION, LAST_EPOCH)
        assert plan.send == {A: at(offset)}
        session.handle_response(NO_SESSION)
    assert session.plan({A: at(5), B: at(0)})[:2] == (NO_SESSION, FIRST_EPOCH)
    session.handle_response(99)
    # The request contains the id of the unused session, which closes it.
    plan = session.plan({A: at(5)})
    assert (plan.session_id, plan.epoch, plan.send, plan.forget) == (99, LAST_EPOCH, {A: at(5)}, {})
    session.handle_response(NO_SESSION)
    again = session.plan({A: at(5), B: at(0)})
    assert (again[:2], set(again.send)) == ((NO_SESSION, FIRST_EPOCH), {A, B})


def test_a_recreated_topic_is_forgotten_and_added_again() -> None:
    session = FetchSession()
    session.plan({A: at(5), B: at(0)})
    session.handle_response(99)
    plan = session.plan({A: at(0, OTHER), B: at(0)})
    assert (plan.send, plan.forget) == ({A: at(0, OTHER)}, {A: ID})


def test_a_session_does_not_mix_names_and_ids() -> None:
    session = FetchSession()
    assert session.plan({A: at(0), B: at(0)}).uses_ids
    session.handle_response(99)
    plan = session.plan({A: at(0), B: at(0, ZERO_UUID)})
    assert (plan.uses_ids, plan.session_id, plan.epoch) == (False, 99, FIRST_EPOCH)
    assert set(plan.send) == {A, B}


def test_requests_are_full_while_the_broker_creates_no_session() -> None:
    session = FetchSession()
    for _ in range(3):
        plan = session.plan({A: at(0), B: at(0)})
        assert (plan.session_id, plan.epoch, set(plan.send)) == (NO_SESSION, FIRST_EPOCH, {A, B})
        session.handle_response(NO_SESSION)


def test_an_error_or_lost_response_starts_a_new_session() -> None:
    session = FetchSession()
    session.plan({A: at(0), B: at(0)})
    session.handle_response(99)
    session.handle_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    plan = session.plan({A: at(0), B: at(0)})
    # The broker may still have the session: the request contains its id, which closes it.
    assert (plan.session_id, plan.epoch, set(plan.send)) == (99, FIRST_EPOCH, {A, B})
    session.handle_response(100)
    session.handle_lost_response()
    assert session.plan({A: at(0), B: at(0)})[:2] == (100, FIRST_EPOCH)
    session.handle_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.plan({A: at(0), B: at(0)})[:2] == (NO_SESSION, FIRST_EPOCH)


def test_the_epoch_wraps_around_to_one() -> None:
    session = FetchSession()
    session.plan({A: at(0), B: at(0)})
    session.handle_response(99)
    session.epoch = 0x7FFF_FFFF
    session.plan({A: at(1), B: at(0)})
    session.handle_response(99)
    assert session.epoch == 1
