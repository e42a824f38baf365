"""Kafka's tool moves a replica between the log dirs of a broker of Lograft and of Kafka; then the
broker is killed, and restarts with the replica in its new place."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.java_tools import JavaTools, eventually
from tests.compatibility.librdkafka import create_topic, produce, read, values_of
from tests.compatibility.servers import NODE_ID, Kind, Server, kinds_under_test

pytestmark = pytest.mark.interop
NewName = Callable[[], str]


@pytest.mark.parametrize("kind", kinds_under_test())
def test_a_replica_moves_to_another_log_dir(
    kind: Kind, java_tools: JavaTools, new_topic: NewName, tmp_path: Path
) -> None:
    topic = new_topic()
    sent = [b"%d" % number * 100 for number in range(3000)]
    server = Server.of(kind, tmp_path)
    dirs = [server.data, tmp_path / "other"]
    server.settings = {**server.settings, "log.dirs": ",".join(str(each) for each in dirs)}
    with server.started():
        create_topic(server.bootstrap, topic)
        produce(server.bootstrap, topic, sent[:2000])
        (source,) = [each for each in dirs if (each / f"{topic}-0").exists()]
        (target,) = [each for each in dirs if each != source]
        plan = tmp_path / "plan.json"
        move = {
            "topic": topic,
            "partition": 0,
            "replicas": [NODE_ID],
            "log_dirs": [str(target)],
        }
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        to = ("--bootstrap-server", server.bootstrap)
        order = ("ReassignPartitionsCommand", *to, "--reassignment-json-file", str(plan))
        java_tools.check(*order, "--execute")
        done = eventually(
            lambda: java_tools.run(*order, "--verify"),
            lambda text: "completed successfully" in text,
        )
        assert f"{topic}-0-{NODE_ID}" in done
        assert (target / f"{topic}-0").exists()
        assert not (source / f"{topic}-0").exists()
        produce(server.bootstrap, topic, sent[2000:])
        assert values_of(read(server.bootstrap, topic)) == sent
        server.kill()
        server.start()
        assert values_of(read(server.bootstrap, topic)) == sent
