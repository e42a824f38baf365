"""The Java console producer and consumer, of Kafka 4.3.1 and of 3.1.0."""

from collections.abc import Callable, Iterator

import pytest

from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import create_topic, produce, read, values_of
from tests.compatibility.servers import Server
from tools.kafka_jars import KAFKA_VERSION, OLD_KAFKA_VERSION

pytestmark = pytest.mark.interop
NewName = Callable[[], str]


@pytest.fixture(scope="session", params=[KAFKA_VERSION, OLD_KAFKA_VERSION])
def console(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaTools]:
    tools = JavaTools(tmp_path_factory.mktemp("console"), request.param)
    yield tools
    tools.close()


def test_what_the_producer_sends_is_read(
    server: Server, console: JavaTools, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    lines = [f"line {number}" for number in range(300)]
    to = ("--bootstrap-server", server.bootstrap, "--topic", topic)
    # 4.3 calls these --reader-property and --command-property, 3.1 --property.
    keyed = "--reader-property" if console.version == KAFKA_VERSION else "--property"
    console.check("ConsoleProducer", *to, stdin="\n".join(lines) + "\n")
    console.check(
        "ConsoleProducer",
        *to,
        "--compression-codec",
        "zstd",
        keyed,
        "parse.key=true",
        keyed,
        "key.separator==",
        stdin="k=v\n",
    )
    messages = read(server.bootstrap, topic)
    assert values_of(messages) == [*(line.encode() for line in lines), b"v"]
    assert messages[-1].key() == b"k"


@pytest.mark.parametrize(("offset", "first"), [("earliest", 0), ("137", 137)])
def test_the_consumer_reads_from_an_offset(
    server: Server, console: JavaTools, new_topic: NewName, offset: str, first: int
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=2)
    values = [f"value {number}".encode() for number in range(200)]
    settings = {"compression.type": "lz4", "batch.num.messages": 30}
    produce(server.bootstrap, topic, values, partition=1, settings=settings)
    wanted = len(values) - first
    shown = console.check(
        "ConsoleConsumer",
        *("--bootstrap-server", server.bootstrap, "--topic", topic),
        *("--partition", "1", "--offset", offset),
        *("--max-messages", str(wanted), "--timeout-ms", "20000"),
    )
    found = [line.encode() for line in shown.lines if line.startswith("value ")]
    assert found == values[first:]
    assert f"Processed a total of {wanted} messages" in shown.text
