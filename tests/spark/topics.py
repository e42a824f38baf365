"""Fills and changes topics with another client: librdkafka."""

from collections.abc import Iterable
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

TIMEOUT_SECONDS = 60


class Topics:
    """An admin client as a context manager, because it must not outlive the server."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.admin.__exit__(*error)

    def create(self, name: str, partitions: int = 2, **configs: str) -> None:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        created = self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        created[name].result(TIMEOUT_SECONDS)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(TIMEOUT_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_SECONDS)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        position = TopicPartition(name, partition, before)
        self.admin.delete_records([position])[position].result(TIMEOUT_SECONDS)

    def fill(
        self,
        name: str,
        values: Iterable[str | bytes],
        *,
        partition: int = -1,
        timestamp_ms: int = 0,
        codec: str = "none",
    ) -> None:
        """Produces records whose key equals their value."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": codec})
        for value in values:
            producer.produce(
                name, key=value, value=value, partition=partition, timestamp=timestamp_ms
            )
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def transact(
        self, name: str, values: Iterable[str], *, commits: bool, partition: int = -1
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"tx-{name}"})
        producer.init_transactions(TIMEOUT_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value=value, partition=partition)
        producer.flush(TIMEOUT_SECONDS)
        if commits:
            producer.commit_transaction(TIMEOUT_SECONDS)
        else:
            producer.abort_transaction(TIMEOUT_SECONDS)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        requests = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = requests[group].result(TIMEOUT_SECONDS).topic_partitions
        return {(position.topic, position.partition): position.offset for position in offsets}
