"""Commands as processes that are stopped by signals: consumers leave their groups, producers flush,
and the exit code is 128 plus the signal's number, as for Kafka's own tools."""

import fcntl
import json
import mmap
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final

import pytest

from tests.compatibility.command_line import done, lograft
from tests.compatibility.librdkafka import create_topic, produce, read, values_of
from tests.compatibility.servers import SMALL_JVM, Server, java_command, lograft_command
from tests.support.waiting import wait_until

NewName = Callable[[], str]
SECONDS_MAX: Final = 60.0
#: Much longer than the test: a member that does not leave stays in its group.
SESSION_MS: Final = 300_000
#: Kafka's own tool, in `make interop`.
JAVA: Final = pytest.param("java", marks=pytest.mark.interop)

pytestmark = pytest.mark.clients


@contextmanager
def running(*command: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOGRAFT_CONTEXT": ""},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended_by(process: "subprocess.Popen[str]", number: signal.Signals) -> tuple[str, str]:
    """The output after the signal."""
    process.send_signal(number)
    # Its input stays open until it has exited.
    process.wait(timeout=SECONDS_MAX)
    out, err = process.communicate()
    assert process.returncode == 128 + number, (process.returncode, err)
    assert "Traceback" not in err
    return out, err


def state_of(server: Server, group: str) -> tuple[str, int, dict[int, int]]:
    """A group's state, number of members, and committed offsets by partition."""
    shown = done("groups", "describe", group, "-b", server.bootstrap, "--json")
    (described,) = json.loads(shown.out)
    offsets = {each["partition"]: each["offset"] for each in described["positions"]}
    return described["state"], len(described["members"]), offsets


def is_full(pipe: IO[str]) -> bool:
    """Returns whether the next line would block."""
    unread = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return bool(unread > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - mmap.PAGESIZE)


def commands(server: Server, topic: str, group: str) -> dict[str, list[str]]:
    session = f"session.timeout.ms={SESSION_MS}"
    where = ["--bootstrap-server", server.bootstrap, "--group", group]
    return {
        "consume": [
            *(*lograft_command(), "consume", topic, *where, "--follow", "--value-only"),
            *("--setting", session),
        ],
        "kafka-console-consumer": [
            *(*lograft_command(), "kafka-console-consumer", "--topic", topic, *where),
            *("--from-beginning", "--consumer-property", session),
        ],
        "java": [
            *java_command(SMALL_JVM),
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, *where),
            *("--from-beginning", "--command-property", session),
        ],
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("command", ["consume", "kafka-console-consumer", JAVA])
def test_a_consumer_leaves_its_group(
    server: Server, new_topic: NewName, command: str, number: signal.Signals
) -> None:
    topic = group = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"first", b"second"])
    with running(*commands(server, topic, group)[command]) as process:
        assert process.stdout is not None
        shown = sorted(process.stdout.readline() for _ in range(2))
        assert shown == ["first\n", "second\n"]
        assert state_of(server, group)[1] == 1
        _, err = ended_by(process, number)
    if command != "consume":
        assert "Processed a total of 2 messages" in err
    state, members, offsets = state_of(server, group)
    assert (state, members) == ("Empty", 0)
    assert sum(offsets.values()) == 2


@pytest.mark.parametrize("command", ["produce", "kafka-console-producer", JAVA])
def test_a_producer_sends_lines_at_once_and_flushes_what_it_has_read(
    server: Server, new_topic: NewName, command: str
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    where = ["--bootstrap-server", server.bootstrap]
    lines = {
        "produce": [*lograft_command(), "produce", topic, *where],
        "kafka-console-producer": [
            *(*lograft_command(), "kafka-console-producer", "--topic", topic, *where)
        ],
        "java": [
            *(*java_command(SMALL_JVM), "org.apache.kafka.tools.ConsoleProducer"),
            *("--topic", topic, *where),
        ],
    }
    with running(*lines[command]) as process:
        assert process.stdin is not None
        process.stdin.write("first\nsec")
        process.stdin.flush()
        wait_until(lambda: values_of(read(server.bootstrap, topic)) == [b"first"])
        # The rest of its line never arrives.
        ended_by(process, signal.SIGTERM)
    assert values_of(read(server.bootstrap, topic)) == [b"first"]


def test_a_bench_that_is_ended_deletes_its_topic(server: Server) -> None:
    command = [*lograft_command(), "bench", "-b", server.bootstrap, "--records", "100000000"]

    def has_topic() -> bool:
        shown = done("topics", "list", "-b", server.bootstrap, "--json")
        return any(load["name"].startswith("lograft-bench-") for load in json.loads(shown.out))

    with running(*command) as process:
        wait_until(has_topic)
        ended_by(process, signal.SIGTERM)
    assert not has_topic()


def test_output_that_nobody_reads_ends_a_command_quietly(
    server: Server, new_topic: NewName
) -> None:
    """Only written records are committed."""
    topic = group = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"%06d" % number for number in range(20_000)], partition=0)
    log = next((server.data / f"{topic}-0").glob("*.log"))
    for command in (
        ["dump-log", "--print-data-log", "--files", str(log)],
        ["kafka-dump-log", "--print-data-log", "--files", str(log)],
        ["consume", topic, "-b", server.bootstrap],
        ["consume", topic, "-b", server.bootstrap, "--follow", "--group", group],
        ["configs", "describe", "--broker", "1", "-b", server.bootstrap, "--json"],
    ):
        with running(*lograft_command(), *command) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == "", command
            assert process.wait(SECONDS_MAX) in (0, 1), command
    _, members, offsets = state_of(server, group)
    assert members == 0
    # A pipe holds 64 KiB.
    assert offsets[0] < 10_000


@pytest.mark.parametrize(
    ("number", "is_reader_gone"), [(signal.SIGTERM, False), (signal.SIGINT, True)]
)
@pytest.mark.parametrize("command", ["consume", "kafka-console-consumer"])
def test_consumer_leaves_its_group_while_its_output_is_blocked(
    server: Server,
    new_topic: NewName,
    command: str,
    number: signal.Signals,
    is_reader_gone: bool,
) -> None:
    """In a pipeline Ctrl-C also stops the reader."""
    topic = group = new_topic()
    create_topic(server.bootstrap, topic)
    # More than a pipe holds.
    produce(server.bootstrap, topic, [b"%0500d" % index for index in range(1_000)], partition=0)
    with running(*commands(server, topic, group)[command]) as process:
        output = process.stdout
        assert output is not None
        lines = [output.readline()]
        wait_until(lambda: is_full(output))
        process.send_signal(number)
        if is_reader_gone:
            output.close()
        wait_until(lambda: state_of(server, group)[1] == 0)
        if not is_reader_gone:
            lines += output.readlines()
        assert process.wait(SECONDS_MAX) == 128 + number
    committed = state_of(server, group)[2][0]
    assert committed <= 200 if is_reader_gone else committed <= len(lines) <= committed + 1


def test_the_rest_of_a_fetch_is_left_to_the_next_member(server: Server, new_topic: NewName) -> None:
    topic = group = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"%d" % number for number in range(10)], partition=0)
    shown = [
        lograft(
            *("consume", topic, "-b", server.bootstrap, "--group", group, "--follow"),
            *("--value-only", "--max", "3"),
        ).lines
        for _ in range(3)
    ]
    assert shown == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"]]
    assert state_of(server, group) == ("Empty", 0, {0: 9})
