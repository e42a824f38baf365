"""Clients that copy a topic in transactions and die within them.

Each transaction writes the records of a poll to the other topic and commits the offsets. The key of
a copy is the name of its transaction, so that the copies show which transactions a consumer saw. A
copier that died returns with its transactional ID; sometimes its previous producer then tries to
commit."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Assigned

from lograft.model.types import TopicPartition
from tests.chaos.members import consumer_settings
from tests.chaos.payloads import uid_in
from tests.chaos.recording import Run
from tests.chaos.topics import Topic

GROUP: Final = "copiers"
POLL_SECONDS: Final = 0.2
BATCH_MAX: Final = 200
CALL_SECONDS_MAX: Final = 10.0
ZOMBIE_SECONDS_MAX: Final = 3.0
RETRY_SECONDS_MAX: Final = 60.0
#: Longer than the timeout of any call.
HANG_SECONDS: Final = 2 * CALL_SECONDS_MAX
TRANSACTION_TIMEOUT_MS: Final = 15_000
#: Probabilities within a transaction: the copier dies, or aborts.
DEATH_CHANCE: Final = 0.02
ABORT_CHANCE: Final = 0.05
AWAY_SECONDS_MAX: Final = 2.0


class LifeOver(Exception):
    """The producer and consumer must be replaced."""


class Copier(threading.Thread):
    def __init__(
        self,
        run: Run,
        index: int,
        source: Topic,
        target: Topic,
        *,
        until: threading.Event,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(name=f"x{index}", daemon=True)
        self._run = run
        self._source = source
        self._target = target
        self._until = until
        self._settings = settings
        self._random = random.Random(f"{run.seed}-{self.name}")
        self._count = 0
        #: A producer that died within a transaction, and the transaction's name.
        self._zombie: tuple[Producer, str] | None = None

    def run(self) -> None:
        while not self._until.is_set():
            try:
                self._live()
            except (LifeOver, KafkaException):
                pass
            self._until.wait(self._random.uniform(0, AWAY_SECONDS_MAX))

    def _live(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._run.bootstrap,
                "transactional.id": f"copier-{self.name}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        settings = {**consumer_settings(self._run, GROUP), **self._settings}
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([self._source.name])
            self._until_done(lambda: producer.init_transactions(CALL_SECONDS_MAX))
            self._wake_zombie()
            while not self._until.is_set():
                self._transaction(producer, consumer)

    def _transaction(self, producer: Producer, consumer: Consumer) -> None:
        messages = [
            each for each in consumer.consume(BATCH_MAX, POLL_SECONDS) if each.error() is None
        ]
        if not messages:
            producer.poll(0)
            return
        self._count += 1
        name = f"{self.name}.{self._count}"
        history = self._run.history
        uids = [uid_in(message.value()) for message in messages]
        history.record(self.name, "invoke", "transaction", name=name, uids=uids)
        outcome = "info"
        try:
            outcome = self._carry_out(producer, consumer, messages, name)
        except KafkaException as error:
            outcome = self._abort_after(producer, error)
        finally:
            history.record(self.name, "ok" if outcome == "ok" else "info", "transaction")
        if outcome != "ok":
            # The positions are ahead of the committed offsets: a new consumer starts there.
            raise LifeOver

    def _carry_out(
        self, producer: Producer, consumer: Consumer, messages: list[Message], name: str
    ) -> str:
        """Returns "ok" if the transaction was committed, or "info" if it was abandoned or aborted,
        or its outcome is unknown."""
        producer.begin_transaction()
        positions: dict[TopicPartition, int] = {}
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            positions[TopicPartition(topic, partition)] = offset + 1
            producer.produce(
                self._target.name, value=message.value(), key=name.encode(), partition=partition
            )
            producer.poll(0)
        offsets = [Assigned(tp.topic, tp.partition, offset) for tp, offset in positions.items()]
        metadata = consumer.consumer_group_metadata()
        self._until_done(
            lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS_MAX)
        )
        chance = self._random.random()
        if chance < DEATH_CHANCE:
            self._zombie = (producer, name)
            return "info"
        if chance < DEATH_CHANCE + ABORT_CHANCE:
            self._until_done(lambda: producer.abort_transaction(CALL_SECONDS_MAX))
            self._record_aborted(name)
            return "info"
        self._until_done(lambda: producer.commit_transaction(CALL_SECONDS_MAX))
        return "ok"

    def _abort_after(self, producer: Producer, error: KafkaException) -> str:
        if _error_in(error).txn_requires_abort():
            try:
                self._until_done(lambda: producer.abort_transaction(CALL_SECONDS_MAX))
            except KafkaException:
                return "info"
            self._record_aborted(f"{self.name}.{self._count}")
        return "info"

    def _record_aborted(self, name: str) -> None:
        self._run.history.record(self.name, "probe", "aborted", name=name)

    def _wake_zombie(self) -> None:
        """Lets the previous producer commit, which must fail: its transaction was aborted when its
        transactional ID was initialized again."""
        if self._zombie is None:
            return
        zombie, name = self._zombie
        self._zombie = None
        self._record_aborted(name)
        self._run.history.record(self.name, "probe", "zombie", name=name)
        try:
            zombie.commit_transaction(ZOMBIE_SECONDS_MAX)
        except KafkaException:
            return
        self._run.trouble(self.name, f"{name} was committed by a fenced producer")

    def _until_done(self, call: Callable[[], Any]) -> None:
        """Repeats the call while librdkafka reports retriable errors."""
        deadline = time.monotonic() + RETRY_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                self._bounded(call)
                return
            except KafkaException as error:
                if not _error_in(error).retriable():
                    raise
        raise LifeOver

    def _bounded(self, call: Callable[[], Any]) -> None:
        """Calls with a time limit: librdkafka (2.16.0; its issues 5456 and 5511) sometimes waits
        forever for a coordinator that has moved, regardless of its timeout. The waiting thread is
        abandoned together with its producer, as if the copier had died."""
        errors: list[KafkaException] = []

        def work() -> None:
            try:
                call()
            except KafkaException as error:
                errors.append(error)

        worker = threading.Thread(target=work, name=f"{self.name} calls", daemon=True)
        worker.start()
        worker.join(HANG_SECONDS)
        if worker.is_alive():
            self._run.history.record(self.name, "probe", "hung")
            raise LifeOver
        for error in errors:
            raise error


def _error_in(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error
