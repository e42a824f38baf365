# ruff: noqa: E501  (a case is a row, also where the row is long)
"""Every command line tool of Kafka 4.3.1, once: the same call on Lograft and on Apache Kafka.

`docs/kafka-tools.md` is the table of results. LOGRAFT_REWRITE_TOOLS=1 writes it anew from the cases
here; without it, the table must equal them, and the cases must name every tool in Kafka's jars.
"""

import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.compatibility.java_tools import JavaTools, ToolRun
from tests.compatibility.librdkafka import create_topic, produce
from tests.compatibility.servers import NODE_ID, Server
from tools.kafka_jars import REPOSITORY, kafka_jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
TABLE: Final = REPOSITORY / "docs" / "kafka-tools.md"
RECORDS: Final = 20
NO_SHARE_GROUPS: Final = "ShareGroupHeartbeatRequest failed"

#: Main classes in Kafka's jars that do not connect to a broker.
WITHOUT_BROKER: Final = {
    "Kafka": "the server itself",
    "TestRaftServer": "a load generator for Kafka's own Raft library",
    "JmxTool": "reads the JMX beans of a JVM",
    "OAuthCompatibilityTool": "tests an OAuth server",
    "ConnectPluginPath": "lists the plugins in a directory of Kafka Connect",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The server, topic and files of a case."""

    server: Server
    topic: str
    folder: Path

    @property
    def to(self) -> tuple[str, str]:
        return "--bootstrap-server", self.server.bootstrap

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True, slots=True)
class Call:
    """A call after that of the case, which verifies its effect. It succeeds on both servers."""

    main: str
    arguments: Callable[[Place], tuple[str, ...]]
    #: As in a case.
    shows: str


@dataclass(frozen=True, slots=True)
class Case:
    main: str
    script: str
    arguments: Callable[[Place], tuple[str, ...]]
    #: A regular expression that the output matches, on both servers unless `on_lograft` differs.
    #: TOPIC stands for the name of the topic, which no other case uses.
    shows: str
    code: int = 0
    stdin: str = ""
    #: Exits its JVM, or prints its result while the JVM exits.
    is_alone: bool = False
    #: Runs until it is stopped, in a separate JVM.
    never_ends: bool = False
    #: Lograft's error if it does not have the feature; empty: the same as Kafka.
    on_lograft: str = ""
    code_on_lograft: int = 1
    remark: str = ""
    then: tuple[Call, ...] = ()

    @property
    def result(self) -> str:
        return "not supported yet" if self.on_lograft else "same as Kafka"


def _client_compatibility(place: Place) -> tuple[str, ...]:
    return (
        *place.to, "--topic", f"{place.topic}-new", "--num-cluster-nodes", "1",
        "--offsets-for-times-supported", "True", "--cluster-id-supported", "True",
        "--expect-record-too-large-exception", "False", "--create-topics-supported", "True",
        "--describe-acls-supported", "True", "--describe-configs-supported", "True",
        "--idempotent-producer-supported", "True",
    )  # fmt: skip


def _reassignment(place: Place) -> tuple[str, ...]:
    plan = (
        f'{{"version":1,"partitions":[{{"topic":"{place.topic}","partition":0,'
        f'"replicas":[{NODE_ID}]}}]}}'
    )
    return (*place.to, "--reassignment-json-file", place.file("plan.json", plan), "--verify")


def _deletion(place: Place) -> tuple[str, ...]:
    text = f'{{"version":1,"partitions":[{{"topic":"{place.topic}","partition":0,"offset":3}}]}}'
    return (*place.to, "--offset-json-file", place.file("offsets.json", text))


def _metadata_copy(place: Place) -> tuple[str, ...]:
    """The tool locks the folder of the log, which a running node has locked."""
    log = place.server.data / "__cluster_metadata-0" / f"{0:020}.log"
    return ("--snapshot", shutil.copy(str(log), str(place.folder)), "ls", "/image")


def _segment(place: Place) -> str:
    return str(place.server.data / f"{place.topic}-0" / f"{0:020}.log")


def _reset(place: Place) -> tuple[str, ...]:
    """Also creates the group, a classic one, under the name of the topic."""
    return (
        *place.to, "--reset-offsets", "--group", place.topic, "--topic", place.topic, "--to-earliest",
        "--execute",
    )  # fmt: skip


def _list(place: Place) -> tuple[str, ...]:
    return (*place.to, "--list")


def _description(place: Place) -> tuple[str, ...]:
    return (*place.to, "--describe", "--group", place.topic)


#: An output without errors and without a line about the group.
WITHOUT_GROUP: Final = r"\A(?![\s\S]*(Exception|Error|TOPIC))"


# fmt: off
CASES: Final = (
    Case("AclCommand", "kafka-acls", lambda at: (*at.to, "--list"), "SecurityDisabledException", 1,
         remark="no authorizer is configured"),
    Case("BrokerApiVersionsCommand", "kafka-broker-api-versions", lambda at: at.to, r"Produce\(0\)"),
    Case("ClientCompatibilityTest", "-", _client_compatibility, "SUCCESS", is_alone=True),
    Case("ClientMetricsCommand", "kafka-client-metrics",
         lambda at: (*at.to, "--alter", "--name", at.topic, "--metrics", "org.apache.kafka.", "--interval", "60000"),
         "Altered client metrics config"),
    Case("ClusterTool", "kafka-cluster", lambda at: ("cluster-id", *at.to), "Cluster ID: "),
    Case("ConfigCommand", "kafka-configs",
         lambda at: (*at.to, "--describe", "--entity-type", "topics", "--entity-name", at.topic, "--all"), "retention.ms="),
    Case("ConsoleConsumer", "kafka-console-consumer",
         lambda at: (*at.to, "--topic", at.topic, "--from-beginning", "--max-messages", "3"), "Processed a total of 3 messages"),
    Case("ConsoleProducer", "kafka-console-producer", lambda at: (*at.to, "--topic", at.topic), r"\A[>\s]*\Z",
         stdin="one\ntwo\n", then=(
             Call("GetOffsetShell", lambda at: (*at.to, "--topic", at.topic), rf"TOPIC:0:{RECORDS + 2}\b"),
             Call("ConsoleConsumer",
                  lambda at: (*at.to, "--topic", at.topic, "--partition", "0", "--offset", str(RECORDS), "--max-messages", "2"),
                  r"one\s+two"),
         )),
    Case("ConsoleShareConsumer", "kafka-console-share-consumer",
         lambda at: (*at.to, "--topic", at.topic, "--timeout-ms", "3000"), "Processed a total of 0 messages",
         on_lograft=NO_SHARE_GROUPS, code_on_lograft=0, remark="share groups"),
    Case("ConsumerGroupCommand", "kafka-consumer-groups", _reset, r"NEW-OFFSET\s+TOPIC +TOPIC +0 +0\b", then=(
        Call("ConsumerGroupCommand", _list, r"(?m)^TOPIC$"),
        Call("ConsumerGroupCommand", _description, rf"TOPIC +TOPIC +0 +0 +{RECORDS} +{RECORDS} "),
    )),
    Case("ConsumerPerformance", "kafka-consumer-perf-test",
         lambda at: (*at.to, "--topic", at.topic, "--num-records", str(RECORDS), "--timeout", "20000"), "start.time"),
    Case("DelegationTokenCommand", "kafka-delegation-tokens",
         lambda at: (*at.to, "--describe", "--command-config", at.file("client.properties", "")),
         "Delegation Token", 1, remark="the listener does not authenticate"),
    Case("DeleteRecordsCommand", "kafka-delete-records", _deletion, "low_watermark: 3"),
    Case("DumpLogSegments", "kafka-dump-log", lambda at: ("--files", _segment(at), "--print-data-log"), "payload: "),
    Case("EndToEndLatency", "kafka-e2e-latency",
         lambda at: (*at.to, "--topic", at.topic, "--num-records", "10", "--producer-acks", "all", "--record-size", "20"),
         "Avg latency: "),
    Case("FeatureCommand", "kafka-features", lambda at: (*at.to, "describe"), "Feature: metadata.version"),
    Case("GetOffsetShell", "kafka-get-offsets", lambda at: (*at.to, "--topic", at.topic), rf":0:{RECORDS}"),
    Case("GroupsCommand", "kafka-groups", lambda at: (*at.to, "--list"), "PROTOCOL"),
    Case("LeaderElectionCommand", "kafka-leader-election",
         lambda at: (*at.to, "--election-type", "preferred", "--topic", at.topic, "--partition", "0"),
         "Valid replica already elected"),
    Case("LogCompactionTester", "-", lambda at: (*at.to, "--messages", "1000", "--duplicates", "5"),
         "Data verification is completed", is_alone=True),
    Case("LogDirsCommand", "kafka-log-dirs", lambda at: (*at.to, "--describe", "--topic-list", at.topic), '"logDirs"'),
    Case("MetadataQuorumCommand", "kafka-metadata-quorum", lambda at: (*at.to, "describe", "--status"), "ClusterId: .+"),
    Case("MetadataShell", "kafka-metadata-shell",
         _metadata_copy, "topics"),
    Case("ProducerPerformance", "kafka-producer-perf-test",
         lambda at: (*at.to, "--topic", at.topic, "--num-records", "100", "--record-size", "100", "--throughput", "-1"),
         "100 records sent"),
    Case("ReassignPartitionsCommand", "kafka-reassign-partitions", _reassignment, "is completed"),
    Case("ReplicaVerificationTool", "kafka-replica-verification",
         lambda at: ("--broker-list", at.server.bootstrap, "--topics-include", at.topic, "--report-interval-ms", "500"),
         "max lag is 0 for partition TOPIC-0", never_ends=True),
    Case("ShareConsumerPerformance", "kafka-share-consumer-perf-test",
         lambda at: (*at.to, "--topic", at.topic, "--num-records", "1", "--timeout", "3000"), "start.time",
         on_lograft=NO_SHARE_GROUPS, remark="share groups"),
    Case("ShareGroupCommand", "kafka-share-groups", _description, "GroupIdNotFoundException: Group TOPIC not found",
         on_lograft="UnsupportedVersionException: The node does not support SHARE_GROUP_DESCRIBE", code_on_lograft=0,
         remark="share groups: `--describe` fails with UnsupportedVersionException; `--list` works",
         then=(Call("ConsumerGroupCommand", _reset, "NEW-OFFSET"), Call("ShareGroupCommand", _list, WITHOUT_GROUP))),
    Case("StorageTool", "kafka-storage",
         lambda at: ("info", "-c", str(at.server.properties_path)), "Found log directory"),
    Case("StreamsGroupCommand", "kafka-streams-groups", _description, "GroupIdNotFoundException: Group TOPIC not found", 1,
         on_lograft="UnsupportedVersionException: The node does not support STREAMS_GROUP_DESCRIBE",
         remark="streams groups: `--describe` fails with UnsupportedVersionException; `--list` works",
         then=(Call("ConsumerGroupCommand", _reset, "NEW-OFFSET"), Call("StreamsGroupCommand", _list, WITHOUT_GROUP))),
    Case("StreamsResetter", "kafka-streams-application-reset",
         lambda at: (*at.to, "--application-id", at.topic, "--input-topics", at.topic), "Reset-offsets for input topics"),
    Case("TopicCommand", "kafka-topics", lambda at: (*at.to, "--describe", "--topic", at.topic), "PartitionCount: 1"),
    Case("TransactionalMessageCopier", "-",
         lambda at: ("--broker-list", at.server.bootstrap, "--transactional-id", at.topic, "--input-topic", at.topic,
                     "--input-partition", "0", "--output-topic", f"{at.topic}-copy", "--consumer-group", at.topic,
                     "--max-messages", str(RECORDS), "--transaction-size", "5"),
         rf'"consumed":{RECORDS}', is_alone=True),
    Case("TransactionsCommand", "kafka-transactions", lambda at: (*at.to, "list"), "TransactionalId"),
    Case("VerifiableConsumer", "-",
         lambda at: (*at.to, "--topic", at.topic, "--group-id", at.topic, "--max-messages", "5"), '"name":"offsets_committed"',
         is_alone=True),
    Case("VerifiableProducer", "-",
         lambda at: (*at.to, "--topic", at.topic, "--max-messages", "10"), '"acked":10', is_alone=True),
    Case("VerifiableShareConsumer", "-",
         lambda at: (*at.to, "--topic", at.topic, "--group-id", at.topic, "--max-messages", "5",
                     "--offset-reset-strategy", "earliest"),
         "records_consumed", is_alone=True, on_lograft=NO_SHARE_GROUPS, code_on_lograft=0, remark="share groups"),
)
# fmt: on


def test_the_cases_name_every_tool() -> None:
    named = {case.main for case in CASES} | WITHOUT_BROKER.keys()
    assert set(main_classes(kafka_jars())) == named


def test_every_expectation_can_fail() -> None:
    for case in CASES:
        for shows in (
            case.shows,
            *filter(None, [case.on_lograft]),
            *(each.shows for each in case.then),
        ):
            assert not re.search(shows, "Exception in thread main: TOPIC"), case.main


def test_the_table_is_that_of_the_cases() -> None:
    text = table()
    if os.environ.get("LOGRAFT_REWRITE_TOOLS"):
        TABLE.write_text(text)
    assert TABLE.read_text() == text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.main)
def test_tool(
    server: Server,
    java_tools: JavaTools,
    new_topic: Callable[[], str],
    tmp_path: Path,
    case: Case,
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [f"value {number}".encode() for number in range(RECORDS)])
    place = Place(server, topic, tmp_path)
    arguments = case.arguments(place)
    is_missing = server.kind == "lograft" and bool(case.on_lograft)
    shows, code = (case.on_lograft, case.code_on_lograft) if is_missing else (case.shows, case.code)
    if case.never_ends:
        done = java_tools.run_until(shows.replace("TOPIC", topic), case.main, *arguments)
    else:
        done = run(java_tools, case, arguments)
    check(done, shows, code, topic, (case.main, *arguments))
    for call in case.then:
        arguments = call.arguments(place)
        done = java_tools.run(call.main, *arguments)
        check(done, call.shows, 0, topic, (call.main, *arguments))


def check(done: ToolRun, shows: str, code: int, topic: str, called: tuple[str, ...]) -> None:
    pattern = shows.replace("TOPIC", re.escape(topic))
    assert re.search(pattern, done.text), f"{' '.join(called)}\n{done.text}"
    assert done.code == code, f"{' '.join(called)}\n{done.text}"


def run(java_tools: JavaTools, case: Case, arguments: tuple[str, ...]) -> ToolRun:
    if case.is_alone:
        return java_tools.run_alone(case.main, *arguments)
    return java_tools.run(case.main, *arguments, stdin=case.stdin)


def main_classes(jars: Path) -> Iterator[str]:
    """The classes with a main() in the jars of Kafka's server, tools and shell."""
    for name in ("kafka_2.13", "kafka-tools", "kafka-shell"):
        (jar,) = jars.glob(f"{name}-[0-9]*.jar")
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                is_tool = re.match(
                    r"(kafka|org/apache/kafka)/(tools/|shell/|admin/|Kafka\.)", entry
                )
                if is_tool and entry.endswith(".class") and "$" not in entry:
                    code = archive.read(entry)
                    # A constant of the class file: the name and the type of `main(String[])`.
                    if b"\x00\x04main" in code and b"([Ljava/lang/String;)V" in code:
                        yield Path(entry).stem


def table() -> str:
    rows = "\n".join(
        f"| `{case.main}` | {'–' if case.script == '-' else f'`{case.script}`'} |"
        f" {case.result}{f' ({case.remark})' if case.remark else ''} |"
        for case in CASES
    )
    others = "\n".join(f"| `{name}` | {reason} |" for name, reason in WITHOUT_BROKER.items())
    return f"""# Kafka's command line tools on Lograft

`make interop` runs every tool of Apache Kafka 4.3.1 once on Lograft, and with `LOGRAFT_INTEROP=full` with the same
arguments on Apache Kafka 4.3.1 as well. `tests/compatibility/test_every_tool.py` contains the
arguments and the expected output, and checks this table. The other files of that directory contain longer scenarios
for some of the tools.

*Same as Kafka* means that a run of the tool had the same exit code on both servers and that
both outputs match the same regular expression, which describes the relevant part of the output.
If a tool prints nothing, further calls check its effect. Complete outputs are not compared, and options
that the call does not use are not tested. *Not supported yet* means that the output of Lograft matches
another expression, in most cases an error message.

| main class | script | result |
|---|---|---|
{rows}

Main classes that do not connect to a broker:

| main class | purpose |
|---|---|
{others}

Kafka Streams (classic protocol; at_least_once and exactly_once_v2), Kafka Connect (standalone, and
distributed with exactly-once source connectors) and MirrorMaker 2 run in the long form of `make interop`
(`tests/compatibility/test_java_frameworks.py`).
"""
