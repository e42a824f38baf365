"""Sends records and prints their offsets: python examples/client/produce.py localhost:9092"""

import asyncio
import sys
from typing import Any

from lograft.client import Acknowledged, ClientError, Delivery, Outgoing, Producer, json_serializer


class Counting:
    """An interceptor that counts records before they are sent, and their acknowledgements."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0

    def on_send(self, record: Outgoing) -> Outgoing:
        self.sent += 1
        return record._replace(headers=[*record.headers, ("source", b"example")])

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        self.failed += error is not None


def by_length(topic: str, key: bytes | None, partition_count: int) -> int:
    """A custom partitioner."""
    return len(key or b"") % partition_count


async def main(servers: str) -> None:
    counting = Counting()
    settings: dict[str, Any] = {"compression.type": "zstd"}  # as read from a file
    async with Producer(
        settings,
        bootstrap_servers=servers,
        linger_ms=20,
        value_serializer=json_serializer,
        partitioner_class=by_length,
        interceptor_classes=[counting],
    ) as producer:
        acknowledged = await producer.send("orders", {"item": "tea", "count": 3}, key="ann")
        print("one order", acknowledged.meaning)

        done: list[Delivery] = []
        for number in range(100):
            delivery = await producer.enqueue("orders", {"number": number}, key="bob")
            delivery.add_done_callback(done.append)
        await producer.flush()
        print(len(done), "more")

        try:
            await producer.send("orders", {1, 2, 3})
        except ClientError as error:
            print("refused:", error)
    print(counting.sent, "sent,", counting.failed, "failed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
