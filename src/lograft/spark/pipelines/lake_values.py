"""Parses the values of a lake's records to columns, and maintains the schema of its table."""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.coded_values import (
    check_decodes,
    decode_values,
    decoder_of,
    schema_of_fields,
)
from lograft.spark.pipelines.folders import BatchTable
from lograft.spark.pipelines.json_schemas import extend_schema, find_changed_fields
from lograft.spark.pipelines.json_values import (
    filter_with_fields,
    find_unknown_fields,
    parse_schema,
    parse_values,
    schema_of,
)
from lograft.spark.pipelines.settings import Lake, Value

LOGGER: Final = logging.getLogger(__name__)

_SCHEMA: Final = "_schema.json"


class Parsed(NamedTuple):
    #: A frame as described in `record_frames`.
    frame: DataFrame
    schema: StructType


class Values(Protocol):
    def check(self, spark: SparkSession) -> None:
        """Raises InvalidConfig if the settings cannot be used. Call it before reading."""

    def parse(self, records: DataFrame) -> Parsed: ...


def values_of(config: Lake, folder: BatchTable, report: Callable[[str], None]) -> Values:
    if config.value.format == "json":
        return JsonValues(config.schema, folder, report)
    return CodedValues(config.value, folder)


class JsonValues:
    """JSON values. The schema is declared, or inferred from the first records and then extended."""

    def __init__(self, text: str | None, folder: BatchTable, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        self._is_declared = text is not None
        self._schema = _read_stored_schema(folder) if text is None else parse_schema(text)

    def __getstate__(self) -> dict[str, Any]:
        """Spark Connect sends this object to the server, where messages can only be logged."""
        return self.__dict__ | {"_report": LOGGER.info}

    def check(self, spark: SparkSession) -> None:
        pass

    def parse(self, records: DataFrame) -> Parsed:
        schema = self._schema_for(records)
        return Parsed(parse_values(records, schema), schema)

    def _schema_for(self, records: DataFrame) -> StructType:
        """Returns the schema of the table, extended for these records; stored before their files
        are written."""
        known = self._schema
        if self._is_declared:
            assert known is not None
            return known
        found = schema_of(records) if known is None else known
        added: list[tuple[str, ...]] = []
        # A sample need not contain every field, so this repeats until no field is unknown.
        while unknown := find_unknown_fields(records, found):
            extended = extend_schema(found, schema_of(filter_with_fields(records, unknown)))
            if extended == found:
                break
            found = extended
            added += unknown
        if found == known:
            return found
        if known is not None and known.fields:
            names = sorted({".".join(path) for path in added})
            self._report(f"new fields: {', '.join(names)}")
        self._folder.write_json(found.jsonValue(), _SCHEMA)
        self._schema = found
        return found


class CodedValues:
    """Avro or Protobuf values. The schema is read from a file; later versions may add fields."""

    def __init__(self, config: Value, folder: BatchTable) -> None:
        self._config = config
        self._decoder = decoder_of(config)
        self._folder = folder

    def check(self, spark: SparkSession) -> None:
        seen = check_decodes(spark, self._decoder, self._config)
        known = _read_stored_schema(self._folder)
        if known is None:
            self._folder.write_json(seen.jsonValue(), _SCHEMA)
            return
        changed = find_changed_fields(known, seen)
        if changed:
            raise InvalidConfig(
                f"column {changed[0]} of the table has a different type than in the schema file:"
                " columns cannot change their type, so use another folder or another column name"
            )
        self._folder.write_json(extend_schema(known, seen).jsonValue(), _SCHEMA)

    def parse(self, records: DataFrame) -> Parsed:
        frame = decode_values(records, self._decoder, skip_bytes=self._config.skip_bytes)
        return Parsed(frame, schema_of_fields(frame))


def _read_stored_schema(folder: BatchTable) -> StructType | None:
    stored = folder.read_json(_SCHEMA)
    return None if stored is None else StructType.fromJson(stored)
