"""Fills and changes topics with a client that is not ours: librdkafka."""

from collections.abc import Iterable
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

PATIENCE_SECONDS = 60


class Topics:
    """A context manager: its client must not outlive the server."""

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
        created[name].result(PATIENCE_SECONDS)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(PATIENCE_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(PATIENCE_SECONDS)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        where = TopicPartition(name, partition, before)
        self.admin.delete_records([where])[where].result(PATIENCE_SECONDS)

    def fill(
        self,
        name: str,
        values: Iterable[str | bytes],
        *,
        partition: int = -1,
        timestamp_ms: int = 0,
        codec: str = "none",
    ) -> None:
        """Key and value are the same."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": codec})
        for value in values:
            producer.produce(
                name, key=value, value=value, partition=partition, timestamp=timestamp_ms
            )
        assert producer.flush(PATIENCE_SECONDS) == 0

    def transact(
        self, name: str, values: Iterable[str], *, commits: bool, partition: int = -1
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"tx-{name}"})
        producer.init_transactions(PATIENCE_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value=value, partition=partition)
        producer.flush(PATIENCE_SECONDS)
        if commits:
            producer.commit_transaction(PATIENCE_SECONDS)
        else:
            producer.abort_transaction(PATIENCE_SECONDS)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(PATIENCE_SECONDS).topic_partitions
        return {(one.topic, one.partition): one.offset for one in found}
