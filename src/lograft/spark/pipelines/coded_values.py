"""Decodes Avro and Protobuf values to columns, with a schema from a file and Spark's own
packages."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.record_frames import FIELDS, add_fields
from lograft.spark.pipelines.settings import Value

_PERMISSIVE: Final = {"mode": "PERMISSIVE"}
#: Marks a decoded value. Spark returns null fields for a value that cannot be decoded, but a valid
#: value may have null fields, too.
_DECODED: Final = "_decoded"
#: Error messages for a missing package, from Spark and from Spark Connect.
_PACKAGE_MISSING: Final = ("'JavaPackage' object is not callable", "_NOT_LOADED_")


class Decoder(Protocol):
    def fields(self, value: Column) -> Column:
        """Returns the value's fields as a struct."""

    def is_good(self, fields: Column) -> Column:
        """Returns whether the value could be decoded."""


@dataclass(frozen=True, slots=True)
class Avro:
    schema: str

    def fields(self, value: Column) -> Column:
        from pyspark.sql.avro.functions import from_avro

        # The reader's schema has an extra field with a default, so every decoded value has it.
        reader_schema = json.loads(self.schema)
        marker = {"name": _DECODED, "type": "boolean", "default": True}
        reader_schema["fields"] = [*reader_schema["fields"], marker]
        return from_avro(
            value, self.schema, {**_PERMISSIVE, "avroSchema": json.dumps(reader_schema)}
        )

    def is_good(self, fields: Column) -> Column:
        return fields.getField(_DECODED).isNotNull()


@dataclass(frozen=True, slots=True)
class Protobuf:
    message: str
    descriptors: bytes

    def fields(self, value: Column) -> Column:
        from pyspark.sql.protobuf.functions import from_protobuf

        return from_protobuf(
            value, self.message, options=_PERMISSIVE, binaryDescriptorSet=self.descriptors
        )

    def is_good(self, fields: Column) -> Column:
        return fields.isNotNull()


def decoder_of(config: Value) -> Decoder:
    """Returns the decoder for the configured format; reads the schema file."""
    path = Path(config.schema_file or config.descriptor_file or "")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"the schema file cannot be read: {error}") from None
    if config.format == "protobuf":
        assert config.message is not None
        return Protobuf(config.message, content)
    try:
        schema = json.loads(content)
    except ValueError as error:
        raise InvalidConfig(f"{path} is not an Avro schema: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidConfig(f"{path} is not an Avro schema of type record")
    return Avro(content.decode())


def decode_values(records: DataFrame, decoder: Decoder, *, skip_bytes: int) -> DataFrame:
    value = F.col("value")
    if skip_bytes:
        value = F.substring(value, skip_bytes + 1, 1 << 30)
    is_bad = ~decoder.is_good(F.col(FIELDS))
    return add_fields(
        records, decoder.fields(value), (is_bad, "the value does not match the schema")
    )


def schema_of_fields(frame: DataFrame) -> StructType:
    struct = frame.schema[FIELDS].dataType
    assert isinstance(struct, StructType), struct
    return StructType([column for column in struct.fields if column.name != _DECODED])


def check_decodes(spark: SparkSession, decoder: Decoder, config: Value) -> StructType:
    """Returns the columns of the schema. Raises InvalidConfig if Spark's package is missing or
    rejects the schema."""
    empty = spark.createDataFrame(
        [],
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp",
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Spark prints help text
            return schema_of_fields(decode_values(empty, decoder, skip_bytes=0))
    except Exception as error:  # from Python, Spark, or Java through py4j
        if not any(text in str(error) for text in _PACKAGE_MISSING):
            reason = " ".join(str(error).splitlines()[:2])
            raise InvalidConfig(f"lake.value: Spark rejected the schema: {reason}") from error
        package = f"org.apache.spark:spark-{config.format}_2.13:{spark.version}"
        raise InvalidConfig(
            f"lake.value.format is {config.format}, but Spark's package for it is not on the class"
            f' path: add conf = {{"spark.jars.packages" = "{package}"}} to [spark], or its jar to'
            " spark.jars"
        ) from None
