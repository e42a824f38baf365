"""Writes the message classes of `lograft.wire` from the schemas in Apache Kafka's jars.

    python tools/generate_messages.py KAFKA_LIBS_FOLDER

Only facts are used: names, types, versions, tags, defaults. The result is committed; for a new
release of Kafka, run this again and review the diff.
"""

import json
import keyword
import re
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent / "src" / "lograft" / "wire"
FOLDERS = ("common/message/", "common/metadata/")
EXTRA = ("message/ProducerSnapshot.json",)
#: Written by hand in wire/headers.py.
HEADERS = ("RequestHeader", "ResponseHeader")
LATEST = 0x7FFF

Json = dict[str, Any]

#: Lograft's fields in Kafka's messages, tagged from 10000 on: name of the struct's schema to the
#: schemas of the fields. Kafka's tools skip them.
OWN_FIELDS: dict[str, list[Json]] = {}


def own(struct: str, field: str, kind: str, *, tag: int, default: str | None, since: int) -> None:
    where = {"versions": f"{since}+", "taggedVersions": f"{since}+", "ignorable": True}
    OWN_FIELDS.setdefault(struct, []).append(
        {"name": field, "type": kind, "tag": tag, "default": default, **where}
    )


# How a partition is replicated (-1: unchanged), and the epoch of its Raft life. In AlterPartition:
# the mode that the leader requests or uses; -1 if the request only changes the ISR.
own("PartitionRecord", "ReplicationMode", "int8", tag=10000, default="0", since=0)
own("PartitionChangeRecord", "ReplicationMode", "int8", tag=10000, default="-1", since=0)
own(
    "AlterPartitionRequestPartitionData",
    "ReplicationMode",
    "int8",
    tag=10000,
    default="-1",
    since=0,
)
# Offset of the controller's metadata at the time of the response: the forwarding broker waits until
# it has replayed this offset.
own("EnvelopeResponse", "MetadataOffset", "int64", tag=10000, default="-1", since=0)
# The controller ends a Raft life and requests the log end offset of this replica.
own("OffsetForLeaderPartition", "LeavingEpoch", "int32", tag=10000, default="-1", since=4)
for topic, first in (
    ("OffsetForLeaderTopic", 4),
    ("VoteRequestTopicData", 0),
    ("BeginQuorumEpochRequestTopicData", 1),
    ("EndQuorumEpochRequestTopicData", 1),
):
    own(topic, "TopicId", "uuid", tag=10000, default=None, since=first)
for partition, first in (
    ("PartitionRecord", 0),
    ("PartitionChangeRecord", 0),
    ("AlterPartitionRequestPartitionData", 0),
    ("FetchPartition", 12),
    ("VoteRequestPartitionData", 0),
    ("BeginQuorumEpochRequestPartitionData", 1),
    ("EndQuorumEpochRequestPartitionData", 1),
):
    own(partition, "RaftLife", "int32", tag=10001, default="-1", since=first)
own("AlterPartitionRequestPartitionData", "RaftVoters", "[]int32", tag=10002, default=None, since=0)
# Both sides of a connection are Lograft: APIs between Lograft brokers are listed, and Lograft's
# tagged fields are supported.
for message in ("ApiVersionsRequest", "ApiVersionsResponse"):
    own(message, "IsLograft", "bool", tag=10000, default="false", since=3)
# The broker that the election should make the leader; -1: as the election type of Kafka requires.
own("ElectLeadersRequest", "Leader", "int32", tag=10000, default="-1", since=2)
# A new replication factor in the same request as a topic's settings: for all partitions, or these.
own(
    "IncrementalAlterConfigsRequest", "ReplicationFactor", "int16", tag=10000, default="-1", since=1
)
own("IncrementalAlterConfigsRequest", "Partitions", "[]int32", tag=10001, default=None, since=1)
# A coordinator claims topics for a group, unless the claims have changed since it checked them.
own("IncrementalAlterConfigsRequest", "Claims", "bool", tag=10002, default="false", since=1)
own("IncrementalAlterConfigsRequest", "HeldBefore", "string", tag=10003, default=None, since=1)
# The groups that use these topics, by subscription or committed offsets: those of the given groups,
# or all groups in the partitions of the internal topic that the response contains.
own("ListGroupsRequest", "UsedTopics", "[]string", tag=10000, default=None, since=5)
own("ListGroupsRequest", "GroupIds", "[]string", tag=10001, default=None, since=5)
own("ListedGroup", "UsedTopics", "[]string", tag=10000, default=None, since=5)
own("ListGroupsResponse", "Partitions", "[]int32", tag=10000, default=None, since=5)
# Stored dynamic values of a broker that it cannot apply, with the reasons.
own("DescribeConfigsResult", "SkippedValues", "[]string", tag=10000, default=None, since=4)
# State of Apache Kafka in the metadata that Lograft does not enforce, as sentences.
own("DescribeClusterResponse", "UnenforcedState", "[]string", tag=10000, default=None, since=0)
# The current and the desired replication mode of a partition, and what a mode switch waits for.
PARTITION = "DescribeTopicPartitionsResponsePartition"
own(PARTITION, "ReplicationMode", "int8", tag=10000, default="0", since=0)
own(PARTITION, "DesiredMode", "int8", tag=10001, default="0", since=0)
own(PARTITION, "ModeReason", "string", tag=10002, default=None, since=0)
# What the leader knows about every replica, in the order of ReplicaNodes; empty in responses of
# other brokers. Unknown offsets and ages are -1.
LEADERS_VIEW = "DescribeTopicPartitionsResponsePartition"
own(LEADERS_VIEW, "HighWatermark", "int64", tag=10010, default="-1", since=0)
for tag, name in enumerate(
    ("LogStartOffsets", "EndOffsets", "LastFetchAgesMs", "LastCaughtUpAgesMs"), start=10011
):
    own(LEADERS_VIEW, f"Replica{name}", "[]int64", tag=tag, default=None, since=0)

# Resetting the offsets of a live group, and undoing it (docs/decisions/0010): what an OffsetCommit
# requests (0: an ordinary commit), why it was rejected, and the previous value of each offset.
own("OffsetCommitRequest", "ResetAction", "int8", tag=10000, default="0", since=8)
own("OffsetCommitResponse", "ErrorMessage", "string", tag=10000, default=None, since=8)
for offset, first in (("OffsetCommitValue", 4), ("OffsetFetchResponsePartitions", 8)):
    own(offset, "ResetTimestamp", "int64", tag=10000, default="-1", since=first)
    own(offset, "OffsetBeforeReset", "int64", tag=10001, default="-1", since=first)
own("OffsetCommitValue", "LeaderEpochBeforeReset", "int32", tag=10002, default="-1", since=4)
own("OffsetCommitValue", "MetadataBeforeReset", "string", tag=10003, default=None, since=4)
# Time at which all members were removed; the record of the next generation or epoch omits it.
for group, first in (("GroupMetadataValue", 4), ("ConsumerGroupMetadataValue", 0)):
    own(group, "FencedTimestamp", "int64", tag=10000, default="-1", since=first)

#: Kafka type: (declaring function, Python type, the value that is equal to no default).
SCALARS = {
    "bool": ("boolean", "bool", False),
    "int8": ("int8", "int", 0),
    "int16": ("int16", "int", 0),
    "uint16": ("uint16", "int", 0),
    "int32": ("int32", "int", 0),
    "uint32": ("uint32", "int", 0),
    "int64": ("int64", "int", 0),
    "float64": ("float64", "float", 0.0),
    "uuid": ("uuid", "UUID", None),
    "string": ("string", "str", ""),
    "bytes": ("binary", "bytes", b""),
    "records": ("record_batches", "Records", b""),
}
KINDS = {"bool": "bool", "binary": "bytes"}


def schemas_in(libs: Path) -> list[Json]:
    found: dict[str, Json] = {}
    for jar in sorted(libs.glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as files:
            for name in files.namelist():
                if name in EXTRA or (name.startswith(FOLDERS) and name.endswith(".json")):
                    text = re.sub(r"^\s*//.*$", "", files.read(name).decode(), flags=re.M)
                    schema = json.loads(text)
                    if schema["name"] not in HEADERS and schema["validVersions"] != "none":
                        found[schema["name"]] = schema
    return [found[name] for name in sorted(found)]


def snake(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return text + "_" if keyword.iskeyword(text) else text


def versions(text: str) -> tuple[int, int]:
    """First and last version; LATEST if the range is open. Empty for ranges without a version."""
    if text == "none":
        return LATEST + 1, LATEST
    if text.endswith("+"):
        return int(text[:-1]), LATEST
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def field_versions(schema: Json) -> tuple[int, int]:
    """A field that specifies only tagged versions exists in no other version."""
    return versions(schema.get("versions") or schema["taggedVersions"])


@dataclass
class Module:
    """A generated file: a request with its response, or a record."""

    schemas: list[Json] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    #: (name of the top-level schema, name of the struct) to class name.
    classes: dict[tuple[str, str], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def source(self) -> str:
        self._name_classes()
        for schema in self.schemas:
            self._write_schema(schema)
        body = "\n".join(self.lines)
        head = [
            '"""Generated by tools/generate_messages.py: do not edit."""',
            "",
            "from __future__ import annotations",
            "",
        ]
        if "UUID" in self.used:
            head += ["from uuid import UUID", ""]
        imports = ", ".join(sorted((self.used - {"UUID"}) | {"Message"}))
        head += [f"from lograft.wire.message import {imports}", ""]
        return "\n".join(head) + body + "\n"

    def _name_classes(self) -> None:
        """A struct keeps Kafka's name. If request and response both have a struct of that name, the
        name of the message becomes its prefix."""
        owners: dict[str, list[str]] = defaultdict(list)
        for schema in self.schemas:
            for struct in self._structs(schema):
                owners[struct].append(schema["name"])
        for struct, tops in owners.items():
            for top in tops:
                plain = len(tops) == 1 or struct == top
                self.classes[top, struct] = struct if plain else top + struct

    def _structs(self, schema: Json) -> dict[str, Json]:
        """Struct name to the schema of its fields, in the order of their dependencies."""
        found: dict[str, Json] = {}
        common = {struct["name"]: struct for struct in schema.get("commonStructs", ())}

        def visit(struct: Json) -> None:
            for inner in struct["fields"]:
                name = inner["type"].removeprefix("[]")
                if name[0].isupper():
                    where = inner if "fields" in inner else common[name]
                    visit(where)
                    found.setdefault(name, where)

        visit(schema)
        found[schema["name"]] = schema
        return found

    def _write_schema(self, schema: Json) -> None:
        top = schema["name"]
        first, last = versions(schema["validVersions"])
        flexible, _ = versions(schema.get("flexibleVersions", "none"))
        for name, struct in self._structs(schema).items():
            options = ""
            if struct is schema:
                if "apiKey" in schema:
                    options += f", key={schema['apiKey']}"
                options += f", versions=({first}, {last})"
                if flexible <= last:
                    options += f", flexible={flexible}"
            self.lines += ["", "", f"class {self.classes[top, name]}(Message{options}):"]
            fields = [
                self._field(top, each, last)
                for each in [*struct["fields"], *OWN_FIELDS.get(self.classes[top, name], ())]
                if field_versions(each)[0] <= last
            ]
            self.lines += fields or ["    pass"]

    def _field(self, top: str, schema: Json, last: int) -> str:
        options: list[str] = []
        since, until = field_versions(schema)
        nullable, nullable_until = versions(schema.get("nullableVersions", "none"))
        tagged = versions(schema.get("taggedVersions", "none"))
        can_be_null = nullable <= min(until, last)
        kind: str = schema["type"]
        default, python = schema.get("default"), ""
        is_tagged = tagged[0] <= last
        assert not is_tagged or tagged == (since, until), schema
        if since:
            options.append(f"since={since}")
        if until < LATEST:
            options.append(f"until={until}")
        if can_be_null:
            options.append(f"nullable={nullable}")
            if nullable_until < until:
                options.append(f"nullable_until={nullable_until}")
        if is_tagged:
            options.append(f"tag={schema['tag']}")
        if kind.startswith("[]"):
            element = kind.removeprefix("[]")
            if element in SCALARS:
                declare, python, _ = SCALARS[element]
                options.insert(0, f'"{KINDS.get(declare, element)}"')
            else:
                python = self.classes[top, element]
                options.insert(0, python)
            self._use(python)
            declare, python = "array", f"list[{python}]"
            if default == "null":
                options.append("default=None")
        elif kind in SCALARS:
            declare, python, none = SCALARS[kind]
            self._use(python)
            value = literal(kind, default, can_be_null)
            if value != none:
                options.append(f"default={value!r}")
        else:
            python = self.classes[top, kind]
            declare = "struct"
            options.insert(0, python)
            # Kafka's reader replaces a missing nullable tagged struct by an empty one, regardless
            # of its default, and writes null as a tag.
            if (default == "null" or is_tagged) and not (is_tagged and can_be_null):
                options.append("default=None")
                can_be_null = True
        if schema.get("ignorable") in (True, "true"):
            options.append("ignorable=True")
        if can_be_null:
            python += " | None"
        self.used.add(declare)
        return f"    {snake(schema['name'])}: {python} = {declare}({', '.join(options)})"

    def _use(self, python: str) -> None:
        if python in ("UUID", "Records"):
            self.used.add(python)


def literal(kind: str, default: object, can_be_null: bool) -> object:
    if default == "null" or (kind == "records" and can_be_null):
        return None
    if kind == "bool":
        return default in (True, "true")
    if kind == "float64":
        return float(str(default or 0))
    if kind in ("string", "bytes", "records"):
        assert not default, default
        return "" if kind == "string" else b""
    if kind == "uuid":
        assert default is None, default
        return None
    return int(str(default or 0), 0)


def api_line(request: Json) -> str:
    first, last = versions(request["validVersions"])
    unstable = bool(request.get("latestVersionUnstable"))
    flexible = min(versions(request.get("flexibleVersions", "none"))[0], last + 1)
    name = request["name"].removesuffix("Request")
    listeners = tuple(sorted(request["listeners"]))
    key = int(request["apiKey"])
    return f"    {(key, name, snake(name), first, last, unstable, flexible, listeners)!r},"


def write_index(path: Path, doc: str, tables: dict[str, list[str]]) -> None:
    text = f'"""{doc}\n\nGenerated by tools/generate_messages.py: do not edit."""\n'
    for declaration, lines in tables.items():
        opening, closing = ("{", "}") if "dict[" in declaration else ("(", ")")
        text += f"\n{declaration} = {opening}\n" + "\n".join(lines) + f"\n{closing}\n"
    path.write_text(text)


def coordinator_of(name: str) -> str:
    if name.startswith("TransactionLog"):
        return "TRANSACTION"
    return "SHARE" if name.startswith(("ShareSnapshot", "ShareUpdate")) else "GROUP"


def record_tables(records: list[Json]) -> dict[str, list[str]]:
    """Record type to module and class, for each log that contains records."""
    tables: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for schema in records:
        name, kind = schema["name"], schema["type"]
        entry = f"    {schema.get('apiKey')}: ({snake(name)!r}, {name!r}),"
        if kind == "metadata":
            tables["METADATA"].append((schema["apiKey"], entry))
        elif kind.startswith("coordinator-"):
            part = kind.removeprefix("coordinator-").upper()
            tables[f"{coordinator_of(name)}_{part}S"].append((schema["apiKey"], entry))
    return {
        f"{table}: dict[int, tuple[str, str]]": [line for _, line in sorted(entries)]
        for table, entries in sorted(tables.items())
    }


def main(libs: Path) -> None:
    schemas = schemas_in(libs)
    modules: dict[Path, Module] = defaultdict(Module)
    requests, records = [], []
    for schema in schemas:
        if schema["type"] in ("request", "response"):
            name = re.sub("(Request|Response)$", "", schema["name"])
            modules[ROOT / "messages" / f"{snake(name)}.py"].schemas.append(schema)
            if schema["type"] == "request":
                requests.append(schema)
        else:
            modules[ROOT / "records" / f"{snake(schema['name'])}.py"].schemas.append(schema)
            records.append(schema)
    for folder in ("messages", "records"):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
        (ROOT / folder).mkdir()
    (ROOT / "messages" / "__init__.py").write_text(
        '"""Requests and responses, one module per API. Generated."""\n'
    )
    (ROOT / "records" / "__init__.py").write_text(
        '"""Records of the metadata log, the coordinators and control batches. Generated."""\n'
    )
    for path, module in modules.items():
        path.write_text(module.source())
    requests.sort(key=lambda schema: int(schema["apiKey"]))
    write_index(
        ROOT / "messages" / "index.py",
        "All APIs: key, name, module, first and last version, whether the last is unstable,\n"
        "first flexible version, listeners.",
        {
            "APIS: tuple[tuple[int, str, str, int, int, bool, int, tuple[str, ...]], ...]": [
                api_line(request) for request in requests
            ]
        },
    )
    write_index(
        ROOT / "records" / "index.py",
        "Type numbers of records: module and class name.",
        record_tables(records),
    )
    files = [str(ROOT / "messages"), str(ROOT / "records")]
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", *files], check=True)
    subprocess.run([sys.executable, "-m", "ruff", "check", "-q", "--fix", *files], check=True)
    print(f"{len(schemas)} schemas, {len(modules)} modules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
