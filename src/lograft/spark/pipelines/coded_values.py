"""Records whose values are Avro or Protobuf, as columns: by a schema that is in a file, with
Spark's own packages for these formats."""

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
from lograft.spark.pipelines.record_frames import FIELDS, decoded
from lograft.spark.pipelines.settings import Value

_PERMISSIVE: Final = {"mode": "PERMISSIVE"}
#: Of a value that was decoded: Spark gives null fields for one that cannot be, which a good one may
#: have, too.
_WHOLE: Final = "_whole"
#: What Spark says, here and through Spark Connect, when a package is missing.
_NOT_THERE: Final = ("'JavaPackage' object is not callable", "_NOT_LOADED_")


class Decoder(Protocol):
    def fields(self, value: Column) -> Column:
        """The struct that the value holds."""

    def is_good(self, fields: Column) -> Column:
        """Whether that worked."""


@dataclass(frozen=True, slots=True)
class Avro:
    schema: str

    def fields(self, value: Column) -> Column:
        from pyspark.sql.avro.functions import from_avro

        # Read with one field more, which every value has by default.
        marked = json.loads(self.schema)
        whole = {"name": _WHOLE, "type": "boolean", "default": True}
        marked["fields"] = [*marked["fields"], whole]
        return from_avro(value, self.schema, {**_PERMISSIVE, "avroSchema": json.dumps(marked)})

    def is_good(self, fields: Column) -> Column:
        return fields.getField(_WHOLE).isNotNull()


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


def decoder_of(asked: Value) -> Decoder:
    """Reads the schema's file."""
    path = Path(asked.schema_file or asked.descriptor_file or "")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"the schema of the values cannot be read: {error}") from None
    if asked.format == "protobuf":
        assert asked.message is not None
        return Protobuf(asked.message, content)
    try:
        schema = json.loads(content)
    except ValueError as error:
        raise InvalidConfig(f"{path} is not an Avro schema: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidConfig(f"{path} is not the Avro schema of a record")
    return Avro(content.decode())


def decoded_values(records: DataFrame, decoder: Decoder, *, skip_bytes: int) -> DataFrame:
    value = F.col("value")
    if skip_bytes:
        value = F.substring(value, skip_bytes + 1, 1 << 30)
    is_bad = ~decoder.is_good(F.col(FIELDS))
    return decoded(
        records, decoder.fields(value), (is_bad, "the value is not what the schema says")
    )


def schema_of_fields(frame: DataFrame) -> StructType:
    found = frame.schema[FIELDS].dataType
    assert isinstance(found, StructType), found
    return StructType([one for one in found.fields if one.name != _WHOLE])


def check_decodes(spark: SparkSession, decoder: Decoder, asked: Value) -> StructType:
    """Before anything is read: the package is there and takes the schema. Returns the columns."""
    nothing = spark.createDataFrame(
        [],
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp",
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Spark prints a page of its own
            return schema_of_fields(decoded_values(nothing, decoder, skip_bytes=0))
    except Exception as error:  # of many kinds: Python's, Spark's, and Java's through py4j
        if not any(words in str(error) for words in _NOT_THERE):
            why = " ".join(str(error).splitlines()[:2])
            raise InvalidConfig(f"lake.value: Spark does not take the schema: {why}") from error
        package = f"org.apache.spark:spark-{asked.format}_2.13:{spark.version}"
        raise InvalidConfig(
            f"lake.value.format is {asked.format}, but Spark's package for it is not on the path:"
            f' name it in [spark] with conf = {{"spark.jars.packages" = "{package}"}}, or its jar'
            " in spark.jars"
        ) from None
