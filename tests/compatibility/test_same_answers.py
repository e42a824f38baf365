"""The same requests, in every version, get the same responses from Lograft and from Apache Kafka.

Values that must differ between two nodes (ids, addresses, sizes on disk) are not compared, and of
error messages only whether there is one.
"""

import socket
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.apis import request_class, spec_of
from lograft.wire.message import Message
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.compatibility.librdkafka import create_topic, produce
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Server, compares_two
from tools.golden_requests import BUILDERS, Subject

pytestmark = [
    pytest.mark.interop,
    compares_two(),
]
INIT_PRODUCER_ID = 22
TOPIC = "same"
#: Fields that are not compared.
OWN = {"throttle_time_ms", "cluster_id", "host", "port", "finalized_features_epoch", "next_cursor"}
#: Fields that are compared only by whether they are set.
WHETHER = {"error_message", "topic_id", "producer_id", "session_id", "log_append_time_ms"}
#: Settings with folders and addresses, or with defaults that differ deliberately.
OWN_SETTINGS = {
    "log.dirs",
    "log.dir",
    "listeners",
    "advertised.listeners",
    "metadata.log.dir",
    "controller.quorum.bootstrap.servers",
    # Kafka 4.3 sets it for the whole cluster if eligible leader replicas are enabled.
    "min.insync.replicas",
    # Lograft has one more assignor.
    "group.consumer.assignors",
}


#: Lograft's tagged fields, which Kafka's clients skip, start here.
OWN_TAGS = 10_000


def ask_when_ready(connection: socket.socket, request: Message, version: int) -> Message:
    """Kafka allocates its first producer ids a moment after the request."""
    for _attempt in range(1000):
        answer = ask(connection, request, version)
        if getattr(answer, "error_code", 0) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
    return answer


def comparable(value: Any, name: str = "") -> Any:
    if isinstance(value, Message):
        return {
            field.name: comparable(getattr(value, field.name), field.name)
            for field in value.FIELDS
            if field.name not in OWN and field.tag < OWN_TAGS
        }
    if name in WHETHER:
        return value not in (None, "", 0, -1, UUID(int=0))
    if isinstance(value, list):
        return sorted((comparable(each) for each in value), key=repr)
    if isinstance(value, memoryview):
        return bytes(value)
    return value


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    # Kafka creates topics automatically some time after its response, Lograft before.
    settings = {"auto.create.topics.enable": "false", "log.initial.task.delay.ms": "3600000"}
    kafka = Server.of("kafka", tmp_path_factory.mktemp("kafka"), settings=settings)
    ours = Server.of("lograft", tmp_path_factory.mktemp("lograft"), settings=settings)
    with kafka.started(), ours.started():
        yield kafka, ours


def subject_of(server: Server) -> Subject:
    """The topic under test, created on first use."""
    with connect(server) as connection:
        known = ask(connection, MetadataRequest(topics=None), 12)
        assert isinstance(known, MetadataResponse)
        if TOPIC not in {topic.name for topic in known.topics}:
            create_topic(server.bootstrap, TOPIC, partitions=2)
            for partition in range(2):  # a leader may need a moment
                produce(server.bootstrap, TOPIC, [b"first"], partition=partition, timestamps_ms=[1])
            known = ask(connection, MetadataRequest(topics=None), 12)
            assert isinstance(known, MetadataResponse)
        topic_id = next(topic.topic_id for topic in known.topics if topic.name == TOPIC)
    return Subject(TOPIC, topic_id)


def requests_of(key: int, about: Subject, version: int) -> list[Message]:
    if key not in BUILDERS:
        return [request_class(key)()]
    requests = list(BUILDERS[key](about, version))
    return requests[:1] if key == INIT_PRODUCER_ID else requests  # the others open transactions


#: In this order: topics are created before they get partitions or are deleted. APIs at the end get
#: an empty request.
DATA_AND_METADATA = [0, 1, 2, 3, 19, 37, 20, 21, 22, 23, 32, 33, 44, 75, 60, 74]


@pytest.mark.parametrize("key", DATA_AND_METADATA, ids=lambda key: spec_of(key).module)
def test_every_version(pair: tuple[Server, Server], key: int) -> None:
    kafkas, ours = (all_answers(server, key) for server in pair)
    different = list(differences(kafkas, ours, ""))
    assert not different, "\n".join(different)


def differences(kafkas: Any, ours: Any, path: str) -> Iterator[str]:
    if isinstance(kafkas, dict) and isinstance(ours, dict):
        for name in kafkas | ours:
            yield from differences(kafkas.get(name), ours.get(name), f"{path}/{name}")
    elif isinstance(kafkas, list) and isinstance(ours, list) and len(kafkas) == len(ours):
        for index, (theirs, mine) in enumerate(zip(kafkas, ours, strict=True)):
            yield from differences(theirs, mine, f"{path}/{index}")
    elif kafkas != ours and not may_differ(path, kafkas):
        yield f"{path}: Kafka {kafkas!r}, Lograft {ours!r}"


def may_differ(path: str, kafkas: Any) -> bool:
    """Lograft may have error messages where Kafka has none, and settings that Kafka does not
    have."""
    names = path.split("/")
    return (names[-1] == "error_message" and not kafkas) or (names[-2] == "configs" and not kafkas)


def all_answers(server: Server, key: int) -> dict[str, Any]:
    about, spec = subject_of(server), spec_of(key)
    found = {}
    with connect(server) as connection:
        for version in range(spec.min_version, spec.max_version + 1):
            for index, request in enumerate(requests_of(key, about, version)):
                answer = comparable(ask_when_ready(connection, request, version))
                found[f"v{version} case {index}"] = tidied(answer)
    return found


def tidied(answer: Any) -> Any:
    """Settings by name, without those that must differ."""
    for result in answer.get("results", []) + answer.get("topics", []):
        if result.get("configs"):
            result["configs"] = {
                config["name"]: config
                for config in result["configs"]
                if config["name"] not in OWN_SETTINGS
            }
    return answer
