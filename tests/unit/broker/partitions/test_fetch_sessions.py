from random import Random

import pytest

from lograft.broker.errors import FetchSessionNotFound, InvalidFetchSessionEpoch
from lograft.broker.partitions.fetch_sessions import (
    EPOCH_MAX,
    SESSION_EVICTIONS,
    SESSION_PARTITIONS,
    SESSIONS,
    FetchSessions,
)
from lograft.model.metrics import value_of
from lograft.simulation.machine import SimulatedRandomness
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData


def new_sessions(count_max: int = 10) -> FetchSessions:
    return FetchSessions(SimulatedRandomness(Random(1)), count_max=count_max)


def request_of(*indexes: int, session: tuple[int, int] = (0, 0)) -> FetchRequest:
    partitions = [FetchPartition(partition=index) for index in indexes]
    return FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="a", partitions=partitions)] if indexes else [],
    )


def open_one(sessions: FetchSessions, *indexes: int, now_ms: int = 0) -> int:
    session = sessions.open(request_of(*indexes), version=12, now_ms=now_ms)
    return 0 if session is None else session.session_id


def test_a_session_goes_on_epoch_by_epoch() -> None:
    sessions = new_sessions()
    session_id = open_one(sessions, 0, 1)
    for epoch in (1, 2, 3):
        session = sessions.resume(request_of(session=(session_id, epoch)), version=12, now_ms=0)
        assert session is not None
        assert [requested.fetch.partition for requested in session.list_requested()] == [0, 1]
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.resume(request_of(session=(session_id, 3)), version=12, now_ms=0)


def test_the_epoch_wraps_to_one() -> None:
    sessions = new_sessions()
    session_id = open_one(sessions, 0)
    session = sessions.resume(request_of(session=(session_id, 1)), version=12, now_ms=0)
    assert session is not None
    session.epoch = EPOCH_MAX
    sessions.resume(request_of(session=(session_id, EPOCH_MAX)), version=12, now_ms=0)
    assert session.epoch == 1


def test_a_partition_that_gave_data_goes_to_the_end_of_the_line() -> None:
    sessions = new_sessions()
    session = sessions.open(request_of(0, 1, 2), version=12, now_ms=0)
    assert session is not None
    requested = session.list_requested()
    answers = [
        PartitionData(partition_index=index, records=b"data" if index == 0 else b"")
        for index in range(3)
    ]
    assert len(list(session.select_updates(zip(requested, answers, strict=True)))) == 3
    assert [each.fetch.partition for each in session.list_requested()] == [1, 2, 0]


def test_errors_and_their_end_are_news() -> None:
    sessions = new_sessions()
    session = sessions.open(request_of(0), version=12, now_ms=0)
    assert session is not None

    def is_sent(answer: PartitionData) -> bool:
        (requested,) = session.list_requested()
        return bool(list(session.select_updates([(requested, answer)])))

    good = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"")
    bad = PartitionData(partition_index=0, error_code=6, high_watermark=-1, records=b"")
    assert is_sent(good)
    assert not is_sent(good)
    assert is_sent(bad)
    assert is_sent(bad), "an error is sent every time"
    assert is_sent(good)
    assert not is_sent(good)


def test_the_cache_is_bounded() -> None:
    sessions = new_sessions(count_max=2)
    first, second = open_one(sessions, 0), open_one(sessions, 0, 1)
    assert open_one(sessions, 0, now_ms=1000) == 0, "both are young and as large"
    assert open_one(sessions, 0, 1, 2, now_ms=60_000) == 0, "young ones are left alone"
    sessions.resume(request_of(session=(second, 1)), version=12, now_ms=100_000)
    assert open_one(sessions, 0, now_ms=130_000) != 0, "the first was silent for long"
    with pytest.raises(FetchSessionNotFound):
        sessions.resume(request_of(session=(first, 1)), version=12, now_ms=130_000)
    assert value_of(sessions, SESSIONS) == 2
    assert value_of(sessions, SESSION_EVICTIONS) == 1


def test_an_empty_request_opens_nothing() -> None:
    assert open_one(new_sessions()) == 0


def test_the_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lograft.broker.partitions.fetch_sessions.PARTITIONS_MAX", 5)
    sessions = new_sessions()
    first = open_one(sessions, 0, 1, 2)
    assert open_one(sessions, 0, 1, 2) == 0, "there is room for two more only"
    second = open_one(sessions, 0, 1)
    assert value_of(sessions, SESSION_PARTITIONS) == 5
    sessions.resume(request_of(2, session=(first, 1)), version=12, now_ms=0)
    with pytest.raises(FetchSessionNotFound):
        sessions.resume(request_of(7, session=(second, 1)), version=12, now_ms=0)
    assert value_of(sessions, SESSION_PARTITIONS) == 3
    sessions.close(first)
    assert value_of(sessions, SESSION_PARTITIONS) == 0
