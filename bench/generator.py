"""Generates the load in a separate process: reads an order in JSON, prints the results in JSON.

`{"load": "produce", "ports": […], "topic": …, …}`; the loads are the functions in LOADS.
"""

import json
import struct
import sys
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from bench.frames import (
    FetchFrame,
    SequencedFrame,
    last_offset_in,
    produce_error_position,
    produce_frame,
    values,
)
from bench.group_load import heartbeats, rebalance
from bench.latency import measure_latency
from bench.pump import pump
from bench.transaction_load import transactions
from lograft.wire.batches import build_batch

BATCH_BYTES: Final = 512 << 10
#: Default fetch size of consumers.
FETCH_BYTES: Final = 1 << 20


class LoadFailed(Exception):
    """The server responded with an error."""


@dataclass(slots=True)
class Repeated:
    """Sends the same Produce frame again and again."""

    frame: bytes
    error_position: int
    acknowledged: int = 0

    def next_frame(self) -> bytes:
        return self.frame

    def on_response(self, response: memoryview) -> None:
        check_error(response, self.error_position)
        self.acknowledged += 1


@dataclass(slots=True)
class Sequenced:
    """Sends the small batches of an idempotent producer."""

    frame: SequencedFrame
    error_position: int
    acknowledged: int = 0

    def next_frame(self) -> bytes:
        return self.frame.next()

    def on_response(self, response: memoryview) -> None:
        check_error(response, self.error_position)
        self.acknowledged += 1


@dataclass(slots=True)
class Reading:
    """Fetches one partition from its start to a given end offset, and discards the records."""

    frame: FetchFrame
    end: int
    offset: int = 0
    received_bytes: int = 0

    def next_frame(self) -> bytes | None:
        return self.frame.at(self.offset) if self.offset < self.end else None

    def on_response(self, response: memoryview) -> None:
        self.received_bytes += len(response)
        self.offset = max(self.offset, last_offset_in(response) + 1)


def check_error(response: memoryview, position: int) -> None:
    (code,) = struct.unpack_from(">h", response, position)
    if code:
        raise LoadFailed(f"produce was answered with error {code}")


def produce(order: dict[str, Any]) -> dict[str, float]:
    value_bytes = order["value_bytes"]
    count = max(1, BATCH_BYTES // (value_bytes + 12))
    batch = build_batch(values(count, value_bytes))
    sources = [
        Repeated(
            produce_frame(order["topic"], partition, batch, acks=order["acks"]),
            produce_error_position(order["topic"]),
        )
        for partition in range(len(order["ports"]))
    ]
    seconds = pump(order["ports"], sources, in_flight=order["in_flight"], seconds=order["seconds"])
    batches = sum(source.acknowledged for source in sources)
    return {
        "seconds": seconds,
        "requests": batches,
        "messages": batches * count,
        "bytes": batches * count * value_bytes,
        "end_offset_min": min(source.acknowledged for source in sources) * count,
    }


def produce_small(order: dict[str, Any]) -> dict[str, float]:
    count, value_bytes = order["records"], order["value_bytes"]
    sources = [
        Sequenced(
            SequencedFrame.of(
                order["topic"],
                partition,
                count=count,
                value_bytes=value_bytes,
                producer_id=order["producer_id"] + partition,
            ),
            produce_error_position(order["topic"]),
        )
        for partition in range(len(order["ports"]))
    ]
    seconds = pump(order["ports"], sources, in_flight=order["in_flight"], seconds=order["seconds"])
    requests = sum(source.acknowledged for source in sources)
    return {
        "seconds": seconds,
        "requests": requests,
        "messages": requests * count,
        "bytes": requests * count * value_bytes,
    }


def consume(order: dict[str, Any]) -> dict[str, float]:
    topic_id = UUID(order["topic_id"])
    sources = [
        Reading(FetchFrame.of(topic_id, partition, bytes_max=FETCH_BYTES, wait_ms=500), end)
        for partition, end in enumerate(order["ends"])
    ]
    seconds = pump(order["ports"], sources, in_flight=1, seconds=order["seconds"])
    messages = sum(source.offset for source in sources)
    return {
        "seconds": seconds,
        "messages": messages,
        "bytes": messages * order["value_bytes"],
        "received_bytes": sum(source.received_bytes for source in sources),
    }


LOADS: Final = {
    "produce": produce,
    "produce_small": produce_small,
    "consume": consume,
    "latency": measure_latency,
    "heartbeats": heartbeats,
    "rebalance": rebalance,
    "transactions": transactions,
}


def main() -> None:
    order = json.loads(sys.argv[1])
    print(json.dumps(LOADS[order["load"]](order)))


if __name__ == "__main__":
    main()
