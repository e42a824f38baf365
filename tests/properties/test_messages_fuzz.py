"""Malformed bytes: every class and version raises only MalformedMessage, without large allocations.

Seeds are fixed, so failures are reproducible. LOGRAFT_FUZZ_ROUNDS multiplies the work.
"""

import os
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from lograft.wire import codec
from lograft.wire.apis import API_VERSIONS, request_class, response_class
from lograft.wire.errors import MalformedMessage
from lograft.wire.headers import read_request_header, read_response_header, write_request_header
from lograft.wire.message import Message
from lograft.wire.record_frames import CONTROL, GROUPS, SHARES, TRANSACTIONS, class_in
from lograft.wire.records import index
from lograft.wire.varints import UUIDS
from tests.properties.mutations import EDGES, mutate
from tests.properties.random_messages import RandomMessages

ROUNDS = int(os.environ.get("LOGRAFT_FUZZ_ROUNDS", "1"))
MUTATIONS = 40


def all_classes() -> list[type[Message]]:
    classes = [request_class(key) for key in API_VERSIONS]
    classes += [response_class(key) for key in API_VERSIONS]
    tables = [index.METADATA, CONTROL]
    for coordinator in (GROUPS, TRANSACTIONS, SHARES):
        tables += [coordinator.keys, coordinator.values]
    for table in tables:
        for number in table:
            kind = class_in(table, number)
            assert kind is not None
            classes.append(kind)
    return classes


def samples(kind: type[Message]) -> Iterator[tuple[int, bytes]]:
    for version in range(kind.VERSIONS[0], kind.VERSIONS[1] + 1):
        seed = f"fuzz {kind.__name__} {version}"
        yield version, codec.write(RandomMessages(seed, fullness=0.7).build(kind, version), version)


def read_or_reject(kind: type[Message], version: int, data: bytes) -> None:
    try:
        _, end = codec.read(kind, version, data)
    except MalformedMessage:
        return
    assert end <= len(data)


CLASSES = all_classes()


def test_every_truncation_is_malformed() -> None:
    for kind in CLASSES:
        for version, data in samples(kind):
            step = max(1, len(data) // 60)
            for end in [*range(0, len(data), step), *range(max(0, len(data) - 5), len(data))]:
                with pytest.raises(MalformedMessage):
                    codec.read(kind, version, data[:end])


def test_mutations_are_read_or_rejected() -> None:
    for kind in CLASSES:
        for version, data in samples(kind):
            chance = random.Random(f"{kind.__name__} {version}")
            for _ in range(MUTATIONS * ROUNDS):
                read_or_reject(kind, version, mutate(data, chance))


def test_noise_is_read_or_rejected() -> None:
    for kind in CLASSES:
        chance = random.Random(kind.__name__)
        for version in range(kind.VERSIONS[0], kind.VERSIONS[1] + 1):
            for _ in range(MUTATIONS * ROUNDS):
                read_or_reject(kind, version, chance.randbytes(chance.randrange(200)))


def test_no_input_allocates_much_more_than_its_size() -> None:
    """Boundary values at every position of a small message: a trusted count would be detected."""
    tracemalloc.start()
    try:
        for kind in CLASSES:
            version, data = list(samples(kind))[-1]
            read_or_reject(kind, version, data)
            data = data[:200]
            chance = random.Random(f"edges {kind.__name__}")
            for at in range(0, len(data), 1 + len(data) // 40):
                edge = chance.choice(EDGES[:7])
                hostile = data[:at] + edge + data[at + len(edge) :]
                # The cache of UUIDs allocates when it grows, which depends on earlier tests.
                UUIDS.clear()
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                read_or_reject(kind, version, hostile)
                _, peak = tracemalloc.get_traced_memory()
                assert peak - before < 20_000 + 100 * len(hostile), (kind, version, at, edge)
    finally:
        tracemalloc.stop()


def test_malformed_headers_raise() -> None:
    chance = random.Random("headers")
    for _ in range(3000 * ROUNDS):
        key = chance.choice(list(API_VERSIONS))
        version = chance.choice((API_VERSIONS[key].min_version, API_VERSIONS[key].max_version))
        data = mutate(write_request_header(key, version, 1, "client") + b"body", chance)
        for read in (read_request_header, lambda data: read_response_header(data, 1)):
            try:
                read(data)
            except MalformedMessage:
                continue
