"""kcat (C), franz-go (Go) and kafkajs against both servers."""

import json
from collections.abc import Callable

import pytest

from tests.compatibility.foreign_programs import go_scenario, js_scripts, kcat, run, run_json
from tests.compatibility.librdkafka import create_topic, produce, read
from tests.compatibility.servers import NODE_ID, Server, is_full_run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
NewName = Callable[[], str]


ALL_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CODECS = ALL_CODECS if is_full_run() else ["none", "gzip", "zstd"]
#: Position in a batch.
ATTRIBUTES_LOW_BYTE = 22


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_produces_and_consumes(server: Server, new_topic: NewName, codec: str) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=2)
    to = [kcat(), "-b", server.bootstrap, "-t", topic, "-p", "1"]
    lines = b"".join(b"key%d:value %d\n" % (number, number) for number in range(100))
    run([*to, "-P", "-K:", "-z", codec, "-H", "from=kcat"], stdin=lines)
    shown = run([*to, "-C", "-e", "-q", "-o", "40", "-f", "%o %k %s %h\n"]).splitlines()
    assert shown == [b"%d key%d value %d from=kcat" % (n, n, n) for n in range(40, 100)]
    assert run([*to, "-C", "-e", "-q", "-o", "-2", "-f", "%o "]) == b"98 99 "
    # An old librdkafka silently sends uncompressed batches if the advertised versions are too low.
    log = (server.data / f"{topic}-1" / f"{0:020}.log").read_bytes()
    assert log[ATTRIBUTES_LOW_BYTE] & 7 == ALL_CODECS.index(codec)


def test_kcat_lists_and_queries(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=3)
    produce(server.bootstrap, topic, [b"a", b"b", b"c"], timestamps_ms=[1000, 2000, 3000])
    listed = json.loads(run([kcat(), "-b", server.bootstrap, "-L", "-J", "-t", topic]))
    assert [broker["name"] for broker in listed["brokers"]] == [server.bootstrap]
    (described,) = listed["topics"]
    assert [each["leader"] for each in described["partitions"]] == [NODE_ID] * 3
    found = run([kcat(), "-b", server.bootstrap, "-Q", "-t", f"{topic}:0:1500"])
    assert f"{topic} [0] offset 1".encode() in found


def test_franz_go(server: Server, new_topic: NewName) -> None:
    assert run_json([str(go_scenario()), "basics", server.bootstrap, new_topic()]) == {
        "produced": 1000,
        "consumed": 1000,
        "in_order": True,
        "headers": "from=franz-go",
        "end_offsets": {"0": 0, "1": 1000},
        "low_after_delete": 123,
        "retention_ms": "3600000",
        "brokers": 1,
        "deleted": True,
    }


@pytest.mark.parametrize("balancer", ["range", "cooperative", "server"])
def test_franz_go_in_a_group(server: Server, new_topic: NewName, balancer: str) -> None:
    order = [str(go_scenario()), "group", server.bootstrap, new_topic(), balancer]
    assert run_json(order) == {
        "read": 204,
        "shared": [2, 2],
        "read_by_heir": 2,
        "alone_again": 4,
        "state": "Stable",
        "committed": 200,
        "state_after": "Empty",
        "deleted_groups": 1,
    }


def test_franz_go_transacts(server: Server, new_topic: NewName) -> None:
    seen = run_json([str(go_scenario()), "transact", server.bootstrap, new_topic()])
    assert (seen["copied"], seen["once_each"], seen["position"]) == (200, True, 200)
    assert seen["aborted"] >= 5
    assert seen["state"] in ("PrepareCommit", "CompleteCommit"), "markers follow the answer"


def test_kafkajs_in_groups_and_transactions(server: Server, new_topic: NewName) -> None:
    order = ["node", str(js_scripts() / "groups.mjs"), server.bootstrap, new_topic()]
    assert run_json(order) == {
        "shared": [0, 1, 2, 3],
        "read": 104,
        "described": "Stable",
        "committed": [26, 26, 26, 26],
        "reset": [0, 0, 0, 0],
        "listed": True,
        "position": 26,
        "aborted": 0,
        "deleted": 0,
    }


def test_kafkajs(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    seen = run_json(["node", str(js_scripts() / "scenario.mjs"), server.bootstrap, topic])
    assert (seen["created"], seen["createdAgain"]) == (True, False)
    assert seen["offsets"] == [0, 2, 4, 6]
    assert sorted((each["partition"], each["high"]) for each in seen["ends"]) == [
        (0, "0"),
        (1, "8"),
    ]
    assert (seen["partitions"], seen["retention"], seen["brokers"]) == (3, "3600000", 1)
    assert seen["afterDelete"]["low"] == "3"
    messages = read(server.bootstrap, topic, partition=1, offset=3)
    assert [(message.key(), message.value()) for message in messages] == [
        (b"k", None),
        *[(b"k", b"plain"), (b"k", None)] * 2,
    ]
    assert messages[1].headers() == [("from", b"kafkajs")]
