"""The cluster for tests serves external clients: librdkafka in this process."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from lograft.model.errors import ErrorCode
from lograft.testing import Cluster

pytestmark = pytest.mark.clients

WAIT_SECONDS = 60


def produced(producer: Any, value: bytes) -> Any:
    """Returns the delivered message, or raises the error."""
    outcome: list[Any] = []
    producer.produce(
        "t", value, on_delivery=lambda error, message: outcome.append(error or message)
    )
    assert producer.flush(WAIT_SECONDS) == 0
    return outcome[0]


def consumed(servers: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    try:
        messages: list[bytes | None] = []
        while len(messages) < count:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None, f"{len(messages)} of {count}"
            assert message.error() is None, message.error()
            messages.append(message.value())
        return messages
    finally:
        consumer.close()


def test_what_is_produced_is_consumed_by_a_group() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        assert [produced(producer, b"%d" % i).offset() for i in range(3)] == [0, 1, 2]
        assert consumed(cluster.bootstrap_servers, 3) == [b"0", b"1", b"2"]


def test_faults_reach_it() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        assert produced(producer, b"0").offset() == 0
        cluster.lose_response("Produce")
        cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, topic="t", partition=0)
        assert produced(producer, b"1").offset() == 1
        cluster.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert produced(producer, b"2").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        fetch = cluster.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="t", times=2)
        assert consumed(cluster.bootstrap_servers, 2) == [b"0", b"1"]
        assert fetch.hits == 2


def test_a_leader_dies_under_it() -> None:
    with Cluster(nodes=3) as cluster:
        cluster.create_topic("t", replication_factor=3)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        assert produced(producer, b"0").offset() == 0
        leader = cluster.leader_of("t", 0)
        cluster.kill(leader)
        assert produced(producer, b"1").offset() == 1
        cluster.start(leader)
        assert consumed(cluster.bootstrap_servers, 2) == [b"0", b"1"]
