"""The lake pipeline with Avro and Protobuf, through Spark's own packages from Maven Central. The
bytes of the values are encoded by hand according to the formats' specifications."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped]
    FieldDescriptorProto,
    FileDescriptorSet,
)

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.running import run_settings
from lograft.spark.pipelines.settings import Lake, Settings, Source, Spark, Value
from tests.compatibility.servers import Server
from tests.spark.topics import TIMEOUT_SECONDS, Topics

with warnings.catch_warnings():  # it imports deprecated parts of the library
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

Row = tuple[int, str | None]
#: The last one has only nulls and defaults, and is valid.
ROWS: list[Row] = [(1, "one"), (-2, None), (300, "drei"), (0, None)]


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    server = Server.of("lograft", tmp_path_factory.mktemp("node"))
    with server.started() as node, Topics(node.bootstrap) as topics:
        yield topics


def varint(number: int) -> bytes:
    found = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 ^ number >> 63)


def avro(row: Row) -> bytes:
    """Both fields may be null: a union with null as its first branch."""
    number, name = row
    text = (name or "").encode()
    return (zigzag(1) + zigzag(number) if number else zigzag(0)) + (
        zigzag(0) if name is None else zigzag(1) + zigzag(len(text)) + text
    )


def protobuf(row: Row) -> bytes:
    number, name = row
    text = (name or "").encode()
    return (b"\x08" + varint(number) if number else b"") + (
        b"" if name is None else b"\x12" + varint(len(text)) + text
    )


def avro_value(folder: Path, *more: str) -> Value:
    fields = [
        {"name": "id", "type": ["null", "long"]},
        {"name": "name", "type": ["null", "string"]},
    ]
    fields += [{"name": each, "type": "long"} for each in more]
    file = folder / "order.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    return Value(format="avro", schema_file=str(file))


def protobuf_value(folder: Path) -> Value:
    found = FileDescriptorSet()
    file = found.file.add(name="order.proto", syntax="proto2", package="shop")
    message = file.message_type.add(name="Order")
    kinds = {"id": FieldDescriptorProto.TYPE_INT64, "name": FieldDescriptorProto.TYPE_STRING}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(
            name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    path = folder / "order.desc"
    path.write_bytes(found.SerializeToString())
    return Value(format="protobuf", descriptor_file=str(path), message="shop.Order")


@pytest.mark.parametrize("skip", [b"", b"\x00\x00\x00\x00\x07"])
@pytest.mark.parametrize(
    ("kind", "encode", "bad"),
    [("avro", avro, b"\x02\x02\x02\x7fshort"), ("protobuf", protobuf, b"\x08\x02\x12\x7fshort")],
)
def test_values_become_columns_and_bad_ones_dead_letters(
    spark: SparkSession,
    spark_packages: dict[str, Path],
    topics: Topics,
    tmp_path: Path,
    kind: str,
    encode: Callable[[Row], bytes],
    bad: bytes,
    skip: bytes,
) -> None:
    if kind not in spark_packages:
        pytest.skip(f"Maven Central has no spark-{kind}_2.13 of this version")
    topic, dead = f"{kind}-{len(skip)}", f"{kind}-{len(skip)}-dead"
    topics.create(topic, 1)
    topics.create(dead, 1)
    value = avro_value(tmp_path) if kind == "avro" else protobuf_value(tmp_path)
    value = replace(value, skip_bytes=len(skip))
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for each in (*map(encode, ROWS[:2]), bad, None, *map(encode, ROWS[2:])):
        producer.produce(topic, value=None if each is None else skip + each)
    assert producer.flush(TIMEOUT_SECONDS) == 0

    folder = str(tmp_path / "lake")
    lake = Lake(folder=folder, value=value, dead_letter_topic=dead, compact_every=0)
    source = Source(bootstrap=topics.bootstrap, topics=(topic,))
    run_settings("lake", Settings(source=source, spark=Spark(), lake=lake), spark=spark)

    rows = spark.read.parquet(folder).orderBy("_offset").collect()
    assert [(row["_offset"], row["id"] or 0, row["name"]) for row in rows] == [
        (offset, *row) for offset, row in zip((0, 1, 4, 5), ROWS, strict=True)
    ]
    letters = spark.read.format("lograft").option("kafka.bootstrap.servers", topics.bootstrap)
    found = (
        letters.options(subscribe=dead, includeHeaders="true").load().orderBy("offset").collect()
    )
    assert [(None if each.value is None else bytes(each.value)) for each in found] == [
        skip + bad,
        None,
    ]
    reasons = [{header.key: bytes(header.value) for header in each.headers} for each in found]
    assert [reason["dead-letter.offset"] for reason in reasons] == [b"2", b"3"]
    assert [reason["dead-letter.reason"] for reason in reasons] == [
        b"the value does not match the schema",
        b"the record has no value",
    ]


def test_a_column_keeps_its_type(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("typed", 1)
    source = Source(bootstrap=topics.bootstrap, topics=("typed",))

    def run(value: Value) -> None:
        lake = Lake(folder=str(tmp_path / "lake"), value=value)
        run_settings("lake", Settings(source=source, spark=Spark(), lake=lake), spark=spark)

    run(avro_value(tmp_path))
    value = avro_value(tmp_path, "price")
    run(value)
    file = Path(value.schema_file or "")
    file.write_text(file.read_text().replace('"string"', '"double"'))
    with pytest.raises(InvalidConfig, match="column name of the table has a different type"):
        run(value)
    file.write_text('{"type": "record", "name": "Order", "fields": [{"name": "id"}]}')
    with pytest.raises(InvalidConfig, match="Spark rejected the schema"):
        run(value)
