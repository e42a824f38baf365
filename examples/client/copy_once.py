"""Copies a topic in transactions, each record exactly once, and stops when it has ten:
python examples/client/copy_once.py localhost:9092"""

import asyncio
import sys

from lograft.client import Consumer, Producer, TopicPartition, TransactionFailed

RECORDS = 10


async def copy(consumer: Consumer, producer: Producer, topic: str) -> int:
    """Copies records in a transaction, which also commits their offsets."""
    polled = await consumer.poll(timeout_ms=1_000)
    if not polled:
        return 0
    offsets: dict[TopicPartition, int] = {}
    try:
        async with producer.transaction():
            for partition, records in polled.items():
                await producer.send_many(topic, [record.value.upper() for record in records])
                offsets[partition] = records[-1].offset + 1
            await producer.send_offsets(offsets, consumer.group_metadata())
    except TransactionFailed as error:
        print("nothing of it counts:", error)
        return 0
    return sum(map(len, polled.values()))


async def main(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as writer:
        await writer.send_many("quiet", [b"word %d" % number for number in range(RECORDS)])
        await writer.flush()
    async with (
        Consumer(
            bootstrap_servers=servers,
            group_id="shouting",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(bootstrap_servers=servers, transactional_id="shouting-1") as producer,
    ):
        consumer.subscribe(["quiet"])
        copied = 0
        while copied < RECORDS:
            copied += await copy(consumer, producer, "loud")
        print("copied", copied)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
