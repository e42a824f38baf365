"""Counts the function calls that each kind of request costs a node.

    python -m bench.micro.request_calls [--against SRC] [--acls]
        [--setting NAME=VALUE ...] [--workload NAME ...] [--functions 10]

A real node runs in a process of its own (`counted_node.py`) and gets one request at a time over a
socket, after a few that warm its caches. The numbers of calls repeat to about one per cent even on
a busy machine, unlike times. `--against` (the `src` folder of another checkout) runs the same load
on that source tree; `--acls` and `--setting` run it with ACLs or with broker settings and compare
with a node without them (`--setting lograft.http.listeners=http://localhost:0`);
`--functions` shows which functions are called more or less often than there.
"""

import argparse
import itertools
import json
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from bench.frames import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    FetchFrame,
    SequencedFrame,
    produce_error_position,
    produce_frame,
    values,
)
from bench.latency import connect, receive_frame
from bench.members import ClassicMember, ConsumerMember
from bench.subject import GROUP_KEY, TRANSACTION_KEY, BenchFailed, Subject
from bench.transaction_load import Transactor
from lograft.model.settings.authorizer import STANDARD_AUTHORIZER
from lograft.security.acls import ALL_OPERATIONS, WILDCARD, AclPermission, PatternType
from lograft.security.authorization import CLUSTER_NAME, ResourceType
from lograft.wire.batches import build_batch
from lograft.wire.headers import frame_request
from lograft.wire.message import Message
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest
from lograft.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lograft.wire.messages.init_producer_id import InitProducerIdRequest
from lograft.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.compatibility.servers import Server

ROOT: Final = Path(__file__).parents[2]
COUNTED_NODE: Final = "bench.micro.counted_node"
VALUE_BYTES: Final = 100
#: Must exceed the number of requests that are always measured (api/request_times.py).
WARM_UP: Final = 120
REQUESTS: Final = 400
#: A consumer's fetch must be waiting before the record arrives.
PARKING_SECONDS: Final = 0.01
LONG_POLL_MS: Final = 10_000
COORDINATOR_SECONDS_MAX: Final = 30.0
#: Position of the error code: before the tags of the only partition, of its topic and of the
#: response.
COMMIT_ERROR_POSITION: Final = -5
#: Position of the error code: after correlation id, tags and throttle time.
INIT_ERROR_POSITION: Final = 9
TOPICS_PER_REQUEST: Final = 100
#: ACLs that do not concern the client.
OTHER_ACLS: Final = 300


class Calls(NamedTuple):
    """Calls of Python functions by name, and the number of calls of C functions."""

    python: Counter[str]
    c: int

    def minus(self, earlier: "Calls") -> "Calls":
        python = Counter(self.python)
        python.subtract(earlier.python)
        return Calls(python, self.c - earlier.c)


@dataclass(slots=True)
class Load:
    """A node under test and a connection to it."""

    server: Server
    counts: Path
    subject: Subject = field(init=False)
    connection: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.subject = Subject([self.server])
        self.connection = connect(self.server.port)

    def ask(self, frame: bytes) -> bytes:
        self.connection.sendall(frame)
        return receive_frame(self.connection)

    def read_calls(self) -> Calls:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.counts))
            report = json.loads(connection.makefile().read())
        return Calls(Counter(report["calls"]), report["c_calls"])

    def measure(
        self, step: Callable[[], object], *, count: int = REQUESTS, warm_up: int = WARM_UP
    ) -> Calls:
        """Returns the calls of `count` steps together."""
        for _ in range(warm_up):
            step()
        before = self.read_calls()
        for _ in range(count):
            step()
        return self.read_calls().minus(before)


class Workload(NamedTuple):
    measure: Callable[[Load], Calls]
    #: The number of repetitions of the counted step, usually a request.
    rounds: int = REQUESTS


def build_frame(request: Message, version: int) -> bytes:
    return frame_request(request, version, correlation_id=1, client_id="bench")


def check_code(response: bytes, position: int) -> None:
    if any(response[position : position + 2]):
        raise BenchFailed(f"the response has an error code: {response!r}")


# ── produce and fetch ────────────────────────────────────────────────────────────────────────────


def produce(load: Load, name: str, *, count: int, value_bytes: int) -> Calls:
    load.subject.create_topic(name)
    producer_id = load.subject.producer_id()
    frames = SequencedFrame.of(
        name, 0, count=count, value_bytes=value_bytes, producer_id=producer_id
    )

    def step() -> None:
        check_code(load.ask(frames.next()), produce_error_position(name))

    return load.measure(step)


def produce_small(load: Load) -> Calls:
    return produce(load, "small", count=1, value_bytes=VALUE_BYTES)


def produce_megabyte(load: Load) -> Calls:
    return produce(load, "megabyte", count=1_000, value_bytes=1_000)


def produce_two_partitions(load: Load) -> Calls:
    """The general path: the pattern of a fast path has one batch."""
    name = "two-produced"
    load.subject.create_topic(name, partitions=2)
    batch = build_batch(values(1, VALUE_BYTES))
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(2)]
    topic = TopicProduceData(name=name, partition_data=partitions)
    frame = build_frame(
        ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION
    )
    return load.measure(lambda: check_code(load.ask(frame), produce_error_position(name)))


def fill(load: Load, name: str, *, partitions: int) -> UUID:
    """Creates a topic with one record in each partition."""
    topic_id = load.subject.create_topic(name, partitions=partitions)
    batch = build_batch(values(1, VALUE_BYTES))
    for index in range(partitions):
        frame = produce_frame(name, index, batch, acks=-1)
        check_code(load.ask(frame), produce_error_position(name))
    return topic_id


def fetch_small(load: Load) -> Calls:
    topic_id = fill(load, "fetched", partitions=1)
    frame = FetchFrame.of(topic_id, 0, bytes_max=1 << 20, wait_ms=0).at(0)
    return load.measure(lambda: check_fetched(load.ask(frame)))


def fetch_two_partitions(load: Load) -> Calls:
    """The general path: the pattern of a fast path has one partition."""
    topic_id = fill(load, "two-fetched", partitions=2)
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(2)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=topic_id, partitions=partitions)],
    )
    frame = build_frame(request, FETCH_VERSION)
    return load.measure(lambda: check_fetched(load.ask(frame)))


def check_fetched(response: bytes) -> None:
    if bytes(range(VALUE_BYTES)) not in response:
        raise BenchFailed(f"the response has no record: {response!r}")


def end_to_end(load: Load) -> Calls:
    """A record is produced while a consumer waits for it."""
    topic_id = load.subject.create_topic("echo")
    frame = produce_frame("echo", 0, build_batch(values(1, VALUE_BYTES)), acks=-1)
    fetch = FetchFrame.of(topic_id, 0, bytes_max=1 << 20, wait_ms=LONG_POLL_MS)
    consumer = connect(load.server.port)
    offset = 0

    def step() -> None:
        nonlocal offset
        consumer.sendall(fetch.at(offset))
        time.sleep(PARKING_SECONDS)
        check_code(load.ask(frame), produce_error_position("echo"))
        check_fetched(receive_frame(consumer))
        offset += 1

    with consumer:
        return load.measure(step)


# ── groups and transactions ──────────────────────────────────────────────────────────────────────


def wait_coordinator(load: Load, key: str, key_type: int, frame: bytes, position: int) -> None:
    """Returns when the coordinator, whose topic this may create, has accepted the request. Its
    error code is at `position` of the response."""
    load.subject.wait_coordinator(key, key_type)
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    while any(load.ask(frame)[position : position + 2]):
        if time.monotonic() > deadline:
            raise BenchFailed(f"the coordinator of {key} does not accept requests")
        time.sleep(0.01)


def heartbeat(load: Load) -> Calls:
    return measure_member(load, ClassicMember("classic", period_seconds=0), "classic")


def consumer_group_heartbeat(load: Load) -> Calls:
    load.subject.create_topic("joined")
    member = ConsumerMember("modern", 0, topic="joined", period_seconds=0)
    return measure_member(load, member, "modern")


def measure_member(load: Load, member: ClassicMember | ConsumerMember, group: str) -> Calls:
    def step() -> None:
        # Members delay a retry by a pause, and a heartbeat by their interval, which is zero.
        time.sleep(member.on_response(memoryview(load.ask(member.frame))))

    load.subject.wait_coordinator(group, GROUP_KEY)
    while not member.is_steady:
        step()
    return load.measure(step)


def offset_commit(load: Load) -> Calls:
    load.subject.create_topic("committed")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequestTopic(name="committed", partitions=[partition])
    frame = build_frame(OffsetCommitRequest(group_id="committing", topics=[topic]), 9)
    wait_coordinator(load, "committing", GROUP_KEY, frame, COMMIT_ERROR_POSITION)
    return load.measure(lambda: check_code(load.ask(frame), COMMIT_ERROR_POSITION))


def init_producer_id(load: Load) -> Calls:
    numbers = itertools.count()

    def frame() -> bytes:
        name = f"initialised-{next(numbers)}"
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        return build_frame(request, 4)

    wait_coordinator(load, "initialised-0", TRANSACTION_KEY, frame(), INIT_ERROR_POSITION)
    return load.measure(lambda: check_code(load.ask(frame()), INIT_ERROR_POSITION))


def transaction(load: Load, *, protocol: int) -> Calls:
    """One record and EndTxn; in protocol 1 also AddPartitionsToTxn."""
    name = f"transactions-{protocol}"
    load.subject.create_topic(name)
    load.subject.wait_coordinator(name, TRANSACTION_KEY)
    producer = Transactor(name, name, 0, value_bytes=VALUE_BYTES, protocol=protocol)

    def step() -> None:
        target = producer.committed + 1
        while producer.committed < target:
            time.sleep(producer.on_response(memoryview(load.ask(producer.frame))))

    return load.measure(step)


# ── topics ───────────────────────────────────────────────────────────────────────────────────────


def create_topics(load: Load, name: str, *, topics: int, count: int) -> Calls:
    numbers = itertools.count()

    def step() -> None:
        number = next(numbers)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=f"{name}-{number}-{index}", num_partitions=1, replication_factor=1
                )
                for index in range(topics)
            ],
            timeout_ms=60_000,
        )
        load.ask(build_frame(request, 7))

    return load.measure(step, count=count, warm_up=2)


def metadata(load: Load) -> Calls:
    load.subject.create_topic("described")
    topic = MetadataRequestTopic(name="described")
    frame = build_frame(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 12)
    return load.measure(lambda: load.ask(frame))


WORKLOADS: Final[dict[str, Workload]] = {
    "produce 100 B": Workload(produce_small),
    "produce 1 MB": Workload(produce_megabyte),
    "produce, 2 partitions": Workload(produce_two_partitions),
    "fetch 100 B": Workload(fetch_small),
    "fetch, 2 partitions": Workload(fetch_two_partitions),
    "end to end": Workload(end_to_end),
    "Heartbeat": Workload(heartbeat),
    "ConsumerGroupHeartbeat": Workload(consumer_group_heartbeat),
    "OffsetCommit": Workload(offset_commit),
    "InitProducerId": Workload(init_producer_id),
    "transaction": Workload(lambda load: transaction(load, protocol=2)),
    "transaction, protocol 1": Workload(lambda load: transaction(load, protocol=1)),
    "Metadata": Workload(metadata),
    "CreateTopics": Workload(lambda load: create_topics(load, "one", topics=1, count=20), 20),
    "CreateTopics of 100": Workload(
        lambda load: create_topics(load, "many", topics=TOPICS_PER_REQUEST, count=3), 3
    ),
}


def add_acls(load: Load) -> None:
    """The client is allowed everything by ACLs, which are not the only ones."""
    acls = [
        (ResourceType.TOPIC, f"team-{number}-", PatternType.PREFIXED, f"User:{number}")
        for number in range(OTHER_ACLS)
    ]
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        acls.append((kind, WILDCARD, PatternType.LITERAL, "User:ANONYMOUS"))
    acls.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:ANONYMOUS"))
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host=WILDCARD,
            operation=ALL_OPERATIONS,
            permission_type=AclPermission.ALLOW,
        )
        for kind, name, pattern, principal in acls
    ]
    load.ask(build_frame(CreateAclsRequest(creations=creations), 3))


@contextmanager
def counted_node(
    source: Path, *, has_acls: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[Load]:
    path = os.pathsep.join(map(str, (source, ROOT)))
    with tempfile.TemporaryDirectory(prefix="lograft-bench-") as folder:
        counts = Path(folder, "counts")
        server = Server.of("lograft", Path(folder, "node"))
        server.prefix = ("env", f"PYTHONPATH={path}", sys.executable, "-m", COUNTED_NODE)
        server.prefix += (str(counts),)
        server.settings |= settings or {}
        if has_acls:
            server.settings |= {
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "allow.everyone.if.no.acl.found": "true",
            }
        with server.started():
            load = Load(server, counts)
            if has_acls:
                add_acls(load)
            yield load
            load.connection.close()


def measure(
    source: Path,
    names: list[str],
    *,
    has_acls: bool = False,
    settings: Mapping[str, str] | None = None,
) -> dict[str, Calls]:
    """Returns the calls of all rounds of each workload."""
    with counted_node(source, has_acls=has_acls, settings=settings) as load:
        return {name: WORKLOADS[name].measure(load) for name in names}


def print_functions(here: Calls, there: Calls | None, *, rounds: int, top: int) -> None:
    """Prints the functions with the most calls, or with the largest differences. In another source
    tree a function may be in another file."""
    python = here.python
    if there is not None:
        python = Counter()
        for name, calls in here.minus(there).python.items():
            python[name.rpartition(": ")[2]] += calls
    for name, calls in sorted(python.items(), key=lambda item: -abs(item[1]))[:top]:
        print(f"    {calls / rounds:+9.1f}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--acls", action="store_true", help="with ACLs against without")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--functions", type=int, default=0, help="how many to show")
    options: Any = parser.parse_args()
    names = options.workload or list(WORKLOADS)
    settings = dict(setting.split("=", 1) for setting in options.setting)
    other = options.against
    if other is None and (options.acls or settings):
        other = ROOT / "src"
    here = measure(ROOT / "src", names, has_acls=options.acls, settings=settings)
    there = measure(other.resolve(), names) if other else {}
    print(f"{'calls of one request':26}{'Python':>9}{'C':>9}", end="")
    print(f"{'against':>11}{'':9}{'change':>10}" if there else "")
    for name in names:
        calls, before, rounds = here[name], there.get(name), WORKLOADS[name].rounds
        print(f"{name:26}{calls.python.total() / rounds:9.1f}{calls.c / rounds:9.1f}", end="")
        if before is not None:
            print(f"{before.python.total() / rounds:11.1f}{before.c / rounds:9.1f}", end="")
            change = calls.python.total() / before.python.total() - 1
            print(f"{change:+10.1%}", end="")
        print()
        print_functions(calls, before, rounds=rounds, top=options.functions)


if __name__ == "__main__":
    main()
