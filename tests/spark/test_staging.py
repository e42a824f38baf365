"""Exactly-once writes without Spark: tasks and drivers die at every point, and the batch is
repeated. A read_committed consumer reads every row exactly once."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lograft.client.errors import ProducerFenced
from lograft.client.producing.prepared_transactions import PreparedTransaction
from lograft.model.errors import InvalidConfig
from lograft.spark.options import WriteOptions, write_options
from lograft.spark.staging import Slot, discard, publish, stage
from tests.spark.reading import read_committed_values
from tests.spark.topics import Topics

NewTopic = Callable[..., str]
TASKS = 3


class Sink:
    """A query that writes to a topic; task `t` of batch `b` has the rows "b.t.0" to "b.t.9"."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self._topics = topics
        self._topic = topic
        given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
        self.options: WriteOptions = write_options(given | {"delivery": "exactly-once"})

    def rows(self, batch: int, task: int) -> list[str]:
        return [f"{batch}.{task}.{row}" for row in range(10)]

    def write(self, batch: int, task: int) -> PreparedTransaction | None:
        table = pa.record_batch({"value": pa.array(self.rows(batch, task))})
        count, staged = stage(self.options, Slot(self._topic, task), batch, iter([table]))
        assert (count == 0) == (staged is None)
        return staged

    def write_all(self, batch: int) -> list[PreparedTransaction]:
        staged = [self.write(batch, task) for task in range(TASKS)]
        return [transaction for transaction in staged if transaction is not None]

    def committed_rows(self) -> list[str]:
        return read_committed_values(self._topics, self._topic, 2)

    def expected(self, *batches: int) -> list[str]:
        return sorted(
            row for batch in batches for task in range(TASKS) for row in self.rows(batch, task)
        )


@pytest.fixture
def sink(topics: Topics, new_topic: NewTopic) -> Sink:
    return Sink(topics, new_topic(2))


def test_staged_rows_are_visible_after_publishing(sink: Sink) -> None:
    for batch in (0, 1):
        staged = sink.write_all(batch)
        assert len(staged) == TASKS
        publish(sink.options, staged)
        publish(sink.options, staged)  # publishing is idempotent
    assert sink.committed_rows() == sink.expected(0, 1)


def test_repeated_task_fences_the_first_attempt(sink: Sink) -> None:
    first = sink.write(0, 0)
    repeated = sink.write_all(0)
    assert first is not None
    with pytest.raises(ProducerFenced):
        publish(sink.options, [first])
    publish(sink.options, repeated)
    assert sink.committed_rows() == sink.expected(0)


def test_rows_of_a_driver_that_died_before_its_commit_are_discarded(sink: Sink) -> None:
    lost = sink.write_all(0)
    publish(sink.options, sink.write_all(0))
    with pytest.raises(ProducerFenced):
        publish(sink.options, lost[:1])  # by a driver that was wrongly considered dead
    assert sink.committed_rows() == sink.expected(0)


@pytest.mark.parametrize("published", range(TASKS + 1))
def test_repeated_batch_completes_an_interrupted_commit(sink: Sink, published: int) -> None:
    publish(sink.options, sink.write_all(0))
    publish(sink.options, sink.write_all(1)[:published])
    repeated = sink.write_all(1)
    assert len(repeated) == TASKS - published, "published rows are not written again"
    publish(sink.options, repeated)
    publish(sink.options, sink.write_all(2))
    assert sink.committed_rows() == sink.expected(0, 1, 2)


def test_aborted_batch_can_be_repeated(sink: Sink) -> None:
    staged = sink.write_all(0)
    discard(sink.options, staged)
    discard(sink.options, staged)
    publish(sink.options, sink.write_all(0))
    assert sink.committed_rows() == sink.expected(0)


def test_repeated_task_may_have_rows_in_another_order(topics: Topics, new_topic: NewTopic) -> None:
    """After a shuffle a repeated task has the same rows in a different order."""
    names = [new_topic(1), new_topic(1)]
    given = {"kafka.bootstrap.servers": topics.bootstrap, "delivery": "exactly-once"}
    options = write_options(given)
    slot = Slot(names[0], 0)
    rows = pa.record_batch({"value": ["a", "b"], "topic": names})
    _, staged = stage(options, slot, 0, iter([rows]))
    assert staged is not None
    publish(options, [staged])
    assert stage(options, slot, 0, iter([rows.take(pa.array([1, 0]))])) == (0, None)
    assert [read_committed_values(topics, name, 1) for name in names] == [["a"], ["b"]]


def test_tasks_without_rows_need_no_transaction(sink: Sink) -> None:
    empty = pa.record_batch({"value": pa.array([], pa.string())})
    assert stage(sink.options, Slot("unused", 0), 0, iter([empty])) == (0, None)
    assert stage(sink.options, Slot("unused", 0), 0, iter([])) == (0, None)


def test_staging_timeout_above_the_brokers_limit_is_rejected(sink: Sink) -> None:
    sink.options = replace(sink.options, staging_timeout_ms=7_200_000)
    with pytest.raises(InvalidConfig, match="stagingTimeout is 7200000 ms"):
        sink.write(0, 0)
