"""The files of groups and transactions: the other server continues with them, and tools decode
them.

As in test_data_folders, with a single kind under test the server restarts on its own folder.
"""

import subprocess
import time
from collections.abc import Callable
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compatibility.conftest import serving
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import (
    ANSWER_SECONDS_MAX,
    admin_of,
    consumer_of,
    create_topic,
    produce,
    read,
    values_of,
)
from tests.compatibility.members import PROTOCOLS, all_of, joined, poll_until
from tests.compatibility.servers import Kind, Server, kinds_under_test, lograft_command
from tests.compatibility.test_confluent_group_admin import offsets_of
from tests.compatibility.test_confluent_transactions import COMMITTED, send, transactional
from tests.compatibility.test_data_folders import writers_and_readers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
NewServer = Callable[..., Server]
TOPIC: Final = "read-by-groups"
FINISHED: Final = "finished"
ONGOING: Final = "ongoing"
GIVEN_UP: Final = "given-up"
GROUPS: Final = ("eager", "consumer")
PARTITIONS: Final = 2


def fill(server: Server) -> Producer:
    """Creates groups of both protocols with offsets, transactions with all outcomes, and one open
    transaction, whose producer is returned."""
    for topic in (TOPIC, FINISHED, ONGOING, GIVEN_UP):
        create_topic(server.bootstrap, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        produce(server.bootstrap, TOPIC, [b"%d" % n for n in range(10)], partition=partition)
    for group in GROUPS:
        with joined(server.bootstrap, group, [TOPIC], PROTOCOLS[group]) as member:
            poll_until(lambda: member.owned == all_of(TOPIC, PARTITIONS), member)
            member.commit(TOPIC, 0, 4, f"of {group}")
            member.commit(TOPIC, 1, 7)
    transact(server, FINISHED, 2)
    ongoing, given_up = transactional(server, ONGOING), transactional(server, GIVEN_UP)
    for producer, name in ((ongoing, ONGOING), (given_up, GIVEN_UP)):
        producer.begin_transaction()
        send(producer, name, b"open")
        add_position(server, producer, name, 5)
    return ongoing


def transact(server: Server, topic: str, position: int) -> None:
    """A transaction that is committed with an offset, and one that is aborted."""
    producer = transactional(server, topic)
    for value, at, end in (
        (b"kept %d" % position, position, producer.commit_transaction),
        (b"gone", 9, producer.abort_transaction),
    ):
        producer.begin_transaction()
        send(producer, topic, value)
        add_position(server, producer, topic, at)
        end(ANSWER_SECONDS_MAX)


def add_position(server: Server, producer: Producer, group: str, position: int) -> None:
    """For a group without members."""
    at = [TopicPartition(TOPIC, 0, position)]
    with consumer_of(server.bootstrap, **{"group.id": group}) as outsider:
        metadata = outsider.consumer_group_metadata()
        producer.send_offsets_to_transaction(at, metadata, ANSWER_SECONDS_MAX)


def listed(admin: AdminClient) -> set[str]:
    found = admin.list_consumer_groups().result(ANSWER_SECONDS_MAX).valid
    return {group.group_id for group in found}


def check(server: Server, finished: list[bytes]) -> None:
    admin = admin_of(server.bootstrap)
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while not {*GROUPS, FINISHED} <= listed(
        admin
    ):  # the server is started before it has loaded everything
        assert time.monotonic() < deadline
    assert values_of(read(server.bootstrap, FINISHED, **COMMITTED)) == finished
    assert offsets_of(admin, FINISHED) == {(TOPIC, 0): int(finished[-1].split()[1])}


def check_groups_go_on(server: Server, *, moved_by: int) -> None:
    """They start at the offsets that the previous server committed, and advance by one."""
    for group in GROUPS:
        with joined(server.bootstrap, group, [TOPIC], PROTOCOLS[group]) as member:
            rest = 10 - (4 + moved_by) + 10 - 7
            poll_until(lambda: len(member.values) == rest, member)  # noqa: B023
            assert member.committed(TOPIC, 0) == 4 + moved_by
            member.commit(TOPIC, 0, 5 + moved_by)


@pytest.mark.parametrize(("writer", "reader"), writers_and_readers(), ids=lambda kind: str(kind))
def test_the_other_server_goes_on(new_server: NewServer, writer: Kind, reader: Kind) -> None:
    first = new_server(writer)
    with first.started():
        ongoing = fill(first)
        check(first, [b"kept 2"])
    second = new_server(reader).using_data_of(first)
    second.port = (
        first.port
    )  # the producer with an open transaction finds the other server at the same address
    with second.started():
        check(second, [b"kept 2"])
        check_groups_go_on(second, moved_by=0)
        ongoing.commit_transaction(ANSWER_SECONDS_MAX)
        assert values_of(read(second.bootstrap, ONGOING, **COMMITTED)) == [b"open"]
        transact(second, GIVEN_UP, 3)
        assert values_of(read(second.bootstrap, GIVEN_UP, **COMMITTED)) == [b"kept 3"]
        admin = admin_of(second.bootstrap)
        assert offsets_of(admin, ONGOING) == {(TOPIC, 0): 5}
        assert offsets_of(admin, GIVEN_UP) == {(TOPIC, 0): 3}
        transact(second, FINISHED, 6)
    third = new_server(writer).using_data_of(second)
    with third.started():
        check(third, [b"kept 2", b"kept 6"])
        check_groups_go_on(third, moved_by=1)
        assert values_of(read(third.bootstrap, ONGOING, **COMMITTED)) == [b"open"]
        assert values_of(read(third.bootstrap, GIVEN_UP, **COMMITTED)) == [b"kept 3"]


@pytest.fixture(scope="module", params=kinds_under_test())
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Server:
    server = Server.of(request.param, tmp_path_factory.mktemp("written"))
    with serving(server):
        fill(server)
    return server


@pytest.mark.parametrize(
    ("topic", "decoder", "wanted"),
    [
        ("__consumer_offsets", "--offsets-decoder", ('"metadata":"of eager', '"offset":7')),
        (
            "__transaction_state",
            "--transaction-log-decoder",
            ('"transactionStatus":1', f'"{FINISHED}"'),
        ),
    ],
)
def test_both_tools_decode_the_coordinators(
    written: Server, java_tools: JavaTools, topic: str, decoder: str, wanted: tuple[str, ...]
) -> None:
    files = sorted(str(path) for path in written.data.glob(f"{topic}-*/*.log"))
    order = (decoder, "--files", ",".join(files))
    theirs = java_tools.check("DumpLogSegments", *order).text
    for part in wanted:
        assert part in theirs
    ours = subprocess.run(
        [*lograft_command(), "dump-log", *order], capture_output=True, text=True, timeout=60
    )
    assert (ours.returncode, ours.stderr) == (0, "")
    assert ours.stdout == theirs
