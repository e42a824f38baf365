"""The commands of `lograft` on a Lograft and on an Apache Kafka node."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.compatibility.command_line import Shown, done, lograft
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.clients, pytest.mark.conformance]
NewName = Callable[[], str]
Run = Callable[..., Shown]


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """No context of the user who runs the tests, and the server under test."""
    monkeypatch.setenv("LOGRAFT_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOGRAFT_BOOTSTRAP_SERVERS", server.bootstrap)
    monkeypatch.setenv("LOGRAFT_CONTEXT", "")
    monkeypatch.delenv("LOGRAFT_TRACE", raising=False)


def as_json(*arguments: str) -> Any:
    return json.loads(done(*arguments, "--json").out)


def test_topics_and_their_settings(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    created = done("topics", "create", topic, "-p", "2", "--config", "retention.ms=5000")
    assert created.out == f"Created topic {topic}: 2 partitions, replication factor 1.\n"
    again = lograft("topics", "create", topic)
    assert (again.code, "already exists" in again.err) == (1, True)
    assert {"name": topic, "partitions": 2}.items() <= next(
        each for each in as_json("topics", "list") if each["name"] == topic
    ).items()
    done("topics", "alter", "--topic", topic, "--partitions", "3")
    described = done("topics", "describe", topic)
    assert described.lines[0].startswith(f"{topic}-0  isr  leader 1  epoch 0  in sync 1")
    assert len(as_json("topics", "describe", topic)[0]["partitions"]) == 3
    done("configs", "alter", "--topic", topic, "--set", "retention.ms=77", "--delete", "flush.ms")
    done("configs", "alter", "--topic", topic, "--append", "cleanup.policy=compact")
    (line,) = (x for x in done("configs", "describe", "--topic", topic).lines if "retention" in x)
    assert line.split() == ["retention.ms", "77", "topic"]
    everything = as_json("configs", "describe", "--topic", topic, "--all")
    assert {"cleanup.policy": "delete,compact"}.items() <= {
        each["name"]: each["value"] for each in everything
    }.items()
    assert "node.id" in done("configs", "describe", "--broker", "1", "--all").out
    assert done("topics", "delete", topic).out == f"Deleted topic {topic}.\n"
    gone = lograft("topics", "describe", topic)
    assert (gone.code, "the topic or partition does not exist" in gone.err) == (1, True)


def test_what_is_not_there_is_said_at_once(server: Server, new_topic: NewName) -> None:
    nobody = lograft("configs", "describe", "--broker", "77")
    assert nobody.code == 1
    assert "there is no broker 77 in the cluster now; known brokers: 1\n" in nobody.err
    topic = new_topic()
    done("topics", "create", topic, "-p", "2")
    beyond = lograft("produce", topic, "v", "--partition", "99")
    assert beyond.code == 1
    assert f"partition 99 does not exist: topic {topic!r} has 2 partitions" in beyond.err
    line = json.dumps({"value": "v", "partition": 7})
    in_a_line = lograft("produce", topic, "--format", "record", text=line)
    assert "partition 7 does not exist: " in in_a_line.err
    assert done("produce", topic, "v", "--partition", "1").out == f"1 record sent to {topic}.\n"


def test_records_in_and_out(server: Server, new_topic: NewName, tmp_path: Path) -> None:
    topic = new_topic()
    done("topics", "create", topic, "-p", "2")
    sent = done("produce", topic, "-p", "0", "--header", "h=1", text='{"n":1}\n{"n":2}\nplain\n')
    assert sent.out == f"3 records sent to {topic}.\n"
    (place,) = as_json("produce", topic, "00ff", "-f", "hex", "-k", "k", "-p", "1")
    assert (place["partition"], place["offset"], place["acks"]) == (1, 0, -1)
    values = done("consume", topic, "--value-only", "-p", "0").lines
    assert values == ['{"n":1}', '{"n":2}', "plain"]
    (line,) = done("consume", topic, "-p", "1").lines
    assert line.split("  ")[0] == f"{topic}-1@0"
    assert line.split("  ")[2:] == ["k", "0x00ff"]
    found = [json.loads(each) for each in done("consume", topic, "--json", "--where", "n=2").lines]
    assert [(each["offset"], each["headers"]) for each in found] == [(1, {"h": 1})]
    assert done("consume", topic, "--grep", "^pl", "--value-only").lines == ["plain"]
    assert len(done("consume", topic, "--from=-1").lines) == 2, "the last of each partition"
    assert done("consume", topic, "-p", "0", "--from", "2", "--value-only").lines == ["plain"]
    assert done("consume", topic, "--from", "1h", "-n", "1").lines != []
    assert done("consume", topic, "--from", "2100-01-01T00:00:00Z").lines == []
    file = tmp_path / "records.parquet"
    assert done("consume", topic, "-o", str(file)).out == f"4 records written to {file}.\n"
    table = pq.read_table(file)
    assert sorted(table["value"].to_pylist()) == [b"\x00\xff", b"plain", b'{"n":1}', b'{"n":2}']
    assert done("consume", topic, "-o", str(file), "--from", "end").out.startswith("0 records")
    assert pq.read_table(file).num_rows == 0, "a file is there though there was nothing to write"
    filtered = lograft("consume", topic, "-o", str(file), "--key", "k")
    assert (filtered.code, "cannot be combined with --key" in filtered.err) == (2, True)
    # The output of consume is valid input for produce.
    copied = "".join(done("consume", topic, "--json").out)
    done("produce", topic, "-f", "record", text=copied)
    assert len(done("consume", topic, "-p", "0").lines) == 6
    missing = lograft("consume", new_topic())
    assert (missing.code, "does not exist: `lograft topics list`" in missing.err) == (1, True)
    assert (
        lograft("consume", topic, "-p", "9").err == f"lograft: topic {topic} has no partition 9\n"
    )


def test_the_newest_value_of_a_key(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    done("topics", "create", topic, "-p", "2")
    lines = "".join(f"k{number % 3}:{number}\n" for number in range(9)) + "k2:gone\n"
    done("produce", topic, "--key-separator", ":", "--null", "gone", text=lines)
    assert done("get", topic, "k1").out == "7\n"
    assert json.loads(done("get", topic, "k0", "--json").out)["value"] == 6
    for key, why in (("k2", "was deleted"), ("k9", "has no record")):
        shown = lograft("get", topic, key)
        assert (shown.code, why in shown.err) == (1, True)
    assert "needed no election" in done("topics", "elect", topic).out


def test_a_group_goes_on_where_it_was(server: Server, new_topic: NewName) -> None:
    topic = group = new_topic()
    done("topics", "create", topic, "-p", "1")
    done("produce", topic, "a", "b", "c")
    read = ("consume", topic, "--group", group, "--value-only")
    assert done(*read, "-n", "2").lines == ["a", "b"]
    (described,) = as_json("groups", "describe", group)
    assert described["positions"][0]["lag"] == 1
    assert done(*read).lines == ["c"]
    assert group in done("groups", "list").out
    done("groups", "delete", group)
    gone = lograft("groups", "describe", group)
    assert (gone.code, "does not exist: `lograft groups list`" in gone.err) == (1, True)


def test_the_cluster(server: Server) -> None:
    quorum = as_json("quorum", "describe")
    assert [voter["node"] for voter in quorum["voters"]] == [quorum["leader"]] == [1]
    refused = lograft("quorum", "remove", "9")
    assert "controller 9 is not among the voters" in refused.err
    report = as_json("doctor")
    assert report["well"], report
    described = as_json("cluster", "describe")
    assert [each["address"] for each in described["cluster"]["brokers"]] == [server.bootstrap]
    assert "metadata.version" in done("cluster", "describe").out
    assert str(server.data) in done("cluster", "disks").out
    assert "broker 9" in lograft("cluster", "unregister", "9").err
    assert "Nothing to do" in done("reassign", "plan").out
    assert done("reassign", "status").out == "No reassignments in progress.\n"
    assert done("transactions", "abort").out == "No hanging transactions.\n"


def test_transactions_in_sight(server: Server, new_topic: NewName) -> None:
    name = new_topic()
    done("transactions", "fence", name)
    (found,) = (
        each for each in as_json("transactions", "list") if each["transactional_id"] == name
    )
    assert found["state"] == "Empty"
    assert done("transactions", "describe", name).lines[1].split()[:2] == [name, "Empty"]


def test_a_bench_cleans_up(server: Server) -> None:
    before = as_json("topics", "list")
    result = as_json("bench", "-n", "500", "--size", "10", "-p", "1")
    assert [each["records"] for each in result["rates"]] == [500, 500]
    assert as_json("topics", "list") == before


def test_nobody_there(server: Server) -> None:
    shown = lograft("topics", "list", "-b", "127.0.0.1:1")
    assert shown.code == 3
    assert shown.err.startswith("lograft: 127.0.0.1:1: connect failed: ")
    assert shown.err.count("\n") == 1
    ill = lograft("doctor", "-b", "127.0.0.1:1", "--json")
    assert (ill.code, json.loads(ill.out)["well"]) == (1, False)
    assert lograft("topics", "alter", "--topic", "t").code == 2
