"""Clients of all languages continue when a coordinator is killed, on three nodes."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.compatibility import conftest
from tests.compatibility.clusters import NODES, Cluster
from tests.compatibility.copiers import (
    Order,
    copy_with_aiokafka,
    copy_with_confluent,
)
from tests.compatibility.foreign_programs import go_scenario, js_scripts, run_json
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import (
    admin_of,
    create_topic,
    outcome,
    produce,
    read,
    values_of,
)
from tests.compatibility.members import PROTOCOLS, all_of, joined, poll_until, share_evenly
from tests.compatibility.readiness import receive_exactly
from tests.compatibility.servers import Kind, Server, in_full_run, is_full_run, kinds_under_test
from tests.compatibility.test_confluent_transactions import COMMITTED
from tests.compatibility.test_group_tools import verifiable
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
NewName = Callable[[], str]
Copy = Callable[[Order], None]
PATIENCE_SECONDS: Final = 90.0
PARTITIONS: Final = 2
COUNT: Final = 1500
#: Java's copier is faster.
JAVA_COUNT: Final = 6000
#: The number of copied records after which the coordinator is killed: the copier is running.
SOON: Final = 100
GROUP, TRANSACTION = 0, 1
FIND_VERSION: Final = 4
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # Time after which Kafka considers a killed broker as failed, without its heartbeats.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    # So that the coordinators of each test are spread over all nodes.
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}


#: The short form runs one client of each kind on one cluster.
KINDS: Final = kinds_under_test() if is_full_run() else kinds_under_test()[:1]


@pytest.fixture(scope="module", params=KINDS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    kind = cast(Kind, request.param)
    cluster = Cluster.of(kind, tmp_path_factory.mktemp(f"{kind}-cluster"), settings=SETTINGS)
    conftest.running.extend(cluster.servers)
    with cluster.started():
        yield cluster
    for server in cluster.servers:
        conftest.running.remove(server)


def coordinator_of(cluster: Cluster, key: str, key_type: int) -> Server:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    frame = frame_request(request, FIND_VERSION, correlation_id=1, client_id="test")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for server in cluster.servers:
            if server.process is None:
                continue
            with socket.create_connection((server.host, server.port), 10) as connection:
                connection.sendall(frame)
                size = int.from_bytes(receive_exactly(connection, 4), "big")
                answer = receive_exactly(connection, size)
            (found,) = read_all(FindCoordinatorResponse, FIND_VERSION, answer, 5).coordinators
            if not found.error_code and cluster.node(found.node_id).process is not None:
                return cluster.node(found.node_id)
    raise AssertionError("no coordinator was found")


def is_whole(cluster: Cluster) -> bool:
    topics = admin_of(cluster.bootstrap).list_topics(timeout=10).topics
    return all(
        len(partition.isrs) == NODES and partition.leader == partition.replicas[0]
        for name in INTERNAL
        if name in topics
        for partition in topics[name].partitions.values()
    )


def kill_and_replace(cluster: Cluster, key: str, key_type: int) -> None:
    """Kills the coordinator of this group or transactional id. It is restarted as soon as there is
    a new coordinator: librdkafka 2.16 (its issue 5511) and aiokafka (1145) send requests to the old
    coordinator until it is back."""
    victim = coordinator_of(cluster, key, key_type)
    victim.kill()
    assert coordinator_of(cluster, key, key_type) is not victim
    victim.launch()
    cluster.wait_joined()


def stable_end(bootstrap: str, topic: str) -> int:
    """Offsets that read_committed consumers may see, including markers."""
    spec: Any = OffsetSpec
    latest = {TopicPartition(topic, number): spec.latest() for number in range(PARTITIONS)}
    admin = admin_of(bootstrap)  # must outlive its futures
    ends = outcome(admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED))
    return sum(max(end.offset, 0) for end in ends.values())


def topics_with(cluster: Cluster, new_topic: NewName, count: int) -> tuple[str, str, list[bytes]]:
    source, target = new_topic(), new_topic()
    for topic in (source, target):
        create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replication_factor=3)
    values = [b"%d" % number for number in range(count)]
    for partition in range(PARTITIONS):
        produce(cluster.bootstrap, source, values[partition::PARTITIONS], partition=partition)
    return source, target, values


def committed(cluster: Cluster, topic: str) -> list[bytes | None]:
    seen: list[bytes | None] = []
    for partition in range(PARTITIONS):
        seen += values_of(read(cluster.bootstrap, topic, partition=partition, **COMMITTED))
    return seen


class Running:
    """Runs a call in a thread, which a failed test does not wait for."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert self.is_done, "it hangs"
        if self._error is not None:
            raise self._error


def copy_while_killed(
    cluster: Cluster, target: str, copy: Callable[[], object], *, key: str, key_type: int
) -> None:
    wait_until(lambda: is_whole(cluster))
    copying = Running(copy)
    wait_until(lambda: copying.is_done or stable_end(cluster.bootstrap, target) > SOON)
    if copying.is_done:
        copying.wait()
        pytest.fail("the copier was too fast to be disturbed")
    kill_and_replace(cluster, key, key_type)
    copying.wait()


def by_program(*command: str) -> Copy:
    def copy(order: Order) -> None:
        bootstrap, source, target, count, group = order
        run_json([*command, bootstrap, source, target, str(count), group])

    return copy


#: The copying client; librdkafka with both families of protocols.
COPIERS: Final[dict[str, Callable[[], Copy]]] = {
    "confluent-eager": lambda: copy_with_confluent("eager"),
    "confluent-consumer": lambda: copy_with_confluent("consumer"),
    "aiokafka": lambda: copy_with_aiokafka,
    "franz-go": lambda: by_program(str(go_scenario()), "copy"),
    "kafkajs": lambda: by_program("node", str(js_scripts() / "copy.mjs")),
}


def group_elsewhere(cluster: Cluster, transactional_id: str) -> str:
    """Returns the name of a group with another coordinator than the transactional id."""
    other = coordinator_of(cluster, transactional_id, TRANSACTION)
    names = (f"{transactional_id}-{number}" for number in range(100))
    return next(name for name in names if coordinator_of(cluster, name, GROUP) is not other)


def copy_without(cluster: Cluster, new_topic: NewName, client: str, whose: int) -> None:
    source, target, values = topics_with(cluster, new_topic, COUNT)
    copy = COPIERS[client]()
    group = group_elsewhere(cluster, source)
    order = Order(cluster.bootstrap, source, target, COUNT, group)
    key = source if whose == TRANSACTION else group
    copy_while_killed(cluster, target, lambda: copy(order), key=key, key_type=whose)
    assert sorted(committed(cluster, target)) == sorted(values)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "client",
    ["confluent-eager", "franz-go", *in_full_run("confluent-consumer", "aiokafka", "kafkajs")],
)
def test_without_the_coordinator_of_the_transaction(
    cluster: Cluster, new_topic: NewName, client: str
) -> None:
    copy_without(cluster, new_topic, client, TRANSACTION)


@pytest.mark.parametrize("client", ["aiokafka", *in_full_run("franz-go")])
def test_without_the_coordinator_of_the_group(
    cluster: Cluster, new_topic: NewName, client: str
) -> None:
    """Not with librdkafka 2.16: if offsets are sent in a transaction, it waits forever for a group
    coordinator that is not in the metadata any more (its issue 5511). kafka-python 3.0 hangs
    without either coordinator, with Apache Kafka, too; it is tested below, with plain commits."""
    copy_without(cluster, new_topic, client, GROUP)


@pytest.mark.parametrize("mode", ["subscribed", *in_full_run("assigned")])
def test_java_copies_each_record_once(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName, mode: str
) -> None:
    source, target, values = topics_with(cluster, new_topic, JAVA_COUNT)
    order = (
        *("--broker-list", cluster.bootstrap, "--transactional-id", source),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--consumer-group", source, "--transaction-size", "10"),
        *(("--group-mode", "--use-group-metadata") if mode == "subscribed" else ()),
    )

    def copy() -> None:
        done = java_tools.run_alone("TransactionalMessageCopier", *order)
        assert done.code == 0, done.text

    copy_while_killed(cluster, target, copy, key=source, key_type=TRANSACTION)
    wanted = values if mode == "subscribed" else values[::PARTITIONS]
    assert sorted(committed(cluster, target)) == sorted(wanted)  # type: ignore[type-var]


@pytest.mark.parametrize("protocol", ["consumer", *in_full_run("classic")])
def test_verifiable_consumers_go_on(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName, protocol: str
) -> None:
    topic, _target, values = topics_with(cluster, new_topic, 200)
    wait_until(lambda: is_whole(cluster))
    with verifiable(java_tools, cluster.bootstrap, topic, "--group-protocol", protocol) as consumer:
        wait_until(lambda: consumer.consumed == len(values))
        wait_until(lambda: bool(consumer.events("offsets_committed")))
        kill_and_replace(cluster, topic, GROUP)
        produce(cluster.bootstrap, topic, [b"later"] * 10)
        wait_until(lambda: consumer.consumed >= len(values) + 10)
        commits = len(consumer.events("offsets_committed"))
        produce(cluster.bootstrap, topic, [b"last"])
        wait_until(lambda: len(consumer.events("offsets_committed")) > commits)
        assert consumer.events("offsets_committed")[-1]["success"]


# It leaves the sockets of refused connections to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kafka_python_goes_on_from_its_commits(cluster: Cluster, new_topic: NewName) -> None:
    topic, _target, values = topics_with(cluster, new_topic, 200)
    wait_until(lambda: is_whole(cluster))
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
    )
    seen: list[bytes] = []

    def has_read(count: int) -> bool:
        for records in consumer.poll(timeout_ms=50).values():
            seen.extend(record.value for record in records)
        return len(seen) >= count

    try:
        # It must know the topic before it leads a group: otherwise it would assign nothing
        # permanently.
        assert consumer.partitions_for_topic(topic)
        wait_until(lambda: has_read(len(values)))
        consumer.commit()
        kill_and_replace(cluster, topic, GROUP)
        produce(cluster.bootstrap, topic, [b"later"])
        wait_until(lambda: has_read(len(values) + 1))
        assert seen[len(values) :] == [b"later"], "nothing twice"
        consumer.commit()
        assert consumer.committed(KafkaPartition(topic, 0)) == len(values) // PARTITIONS + 1
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["consumer", *in_full_run("eager", "cooperative")])
def test_members_go_on_from_their_commits(
    cluster: Cluster, new_topic: NewName, protocol: str
) -> None:
    topic, _target, values = topics_with(cluster, new_topic, 200)
    wanted = all_of(topic, PARTITIONS)
    wait_until(lambda: is_whole(cluster))
    how = PROTOCOLS[protocol]
    with joined(cluster.bootstrap, topic, [topic], how) as first:
        with joined(cluster.bootstrap, topic, [topic], how) as second:
            both = [first, second]
            poll_until(lambda: share_evenly(both, wanted), *both)
            poll_until(lambda: len(first.values) + len(second.values) >= len(values), *both)
            for partition in range(PARTITIONS):
                owner = next(member for member in both if (topic, partition) in member.owned)
                owner.commit(topic, partition, 60 + partition)
            kill_and_replace(cluster, topic, GROUP)
            later = [b"later %d" % number for number in range(PARTITIONS)]
            for partition, value in enumerate(later):
                produce(cluster.bootstrap, topic, [value], partition=partition)
            poll_until(lambda: set(later) <= {*first.values, *second.values}, *both)
        poll_until(lambda: first.owned == wanted, first)
        assert [first.committed(topic, partition) for partition in range(PARTITIONS)] == [60, 61]
        first.commit(topic, 0, 70)
        assert first.committed(topic, 0) == 70
