"""Kafka 4.3.1's own tools on transactions: TransactionalMessageCopier, TransactionsCommand."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import (
    ANSWER_SECONDS_MAX,
    create_topic,
    produce,
    read,
    values_of,
)
from tests.compatibility.servers import NODE_ID, Server, in_full_run
from tests.compatibility.test_confluent_transactions import COMMITTED, send, transactional

pytestmark = pytest.mark.interop
NewName = Callable[[], str]
VALUES = [b"%d" % number for number in range(500)]
COPIERS = {
    "assigned": (),
    "subscribed": ("--group-mode", "--use-group-metadata"),
    "aborting": ("--group-mode", "--use-group-metadata", "--enable-random-aborts"),
}


@pytest.mark.parametrize("how", ["aborting", *in_full_run("assigned", "subscribed")])
def test_transactional_message_copier(
    server: Server, java_tools: JavaTools, new_topic: NewName, how: str
) -> None:
    source, target = new_topic(), new_topic()
    for topic in (source, target):
        create_topic(server.bootstrap, topic)
    produce(server.bootstrap, source, VALUES)
    done = java_tools.run_alone(
        "TransactionalMessageCopier",
        *("--broker-list", server.bootstrap, "--transactional-id", source),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--consumer-group", source, "--transaction-size", "20"),
        *COPIERS[how],
    )
    assert done.code == 0, done.text
    assert values_of(read(server.bootstrap, target, **COMMITTED)) == VALUES


def command(java_tools: JavaTools, server: Server, *arguments: str) -> list[list[str]]:
    """The table that TransactionsCommand prints, starting with the header."""
    done = java_tools.check(
        "TransactionsCommand", "--bootstrap-server", server.bootstrap, *arguments
    )
    return [line.split() for line in done.lines if line.strip()]


def test_an_open_transaction_is_shown(
    server: Server, java_tools: JavaTools, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    producer = transactional(server, topic)
    producer.begin_transaction()
    send(producer, topic, b"open")
    rows = [row for row in command(java_tools, server, "list") if row[0] == topic]
    ((_name, coordinator, producer_id, state),) = rows
    assert (coordinator, state) == (str(NODE_ID), "Ongoing")
    heading, row = command(java_tools, server, "describe", "--transactional-id", topic)
    shown = dict(zip(heading, row, strict=True))
    assert shown["ProducerId"] == producer_id
    assert (shown["TransactionState"], shown["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    at = ("--topic", topic, "--partition", "0")
    heading, row = command(java_tools, server, "describe-producers", *at)
    shown = dict(zip(heading, row, strict=True))
    assert (shown["ProducerId"], shown["CurrentTransactionStartOffset"]) == (producer_id, "0")
    assert command(java_tools, server, "find-hanging", "--broker-id", str(NODE_ID))[1:] == []
    producer.commit_transaction(ANSWER_SECONDS_MAX)
    heading, row = command(java_tools, server, "describe-producers", *at)
    assert dict(zip(heading, row, strict=True))["CurrentTransactionStartOffset"] == "None"


@pytest.mark.parametrize("how", ["abort", "forceTerminateTransaction"])
def test_an_operator_ends_a_transaction(
    server: Server, java_tools: JavaTools, new_topic: NewName, how: str
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    producer = transactional(server, topic)
    producer.begin_transaction()
    send(producer, topic, b"hangs")
    produce(server.bootstrap, topic, [b"after"])
    if how == "abort":
        at = ("--topic", topic, "--partition", "0", "--start-offset", "0")
        command(java_tools, server, "abort", *at)
    else:
        command(java_tools, server, how, "--transactionalId", topic)
        with pytest.raises(KafkaException):
            producer.commit_transaction(ANSWER_SECONDS_MAX)
    assert values_of(read(server.bootstrap, topic, **COMMITTED)) == [b"after"]
