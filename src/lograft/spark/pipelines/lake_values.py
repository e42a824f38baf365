"""What a lake makes of the values of its records: columns, and the schema of the table that grows
with them."""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.coded_values import (
    check_decodes,
    decoded_values,
    decoder_of,
    schema_of_fields,
)
from lograft.spark.pipelines.folders import BatchTable
from lograft.spark.pipelines.json_schemas import changed, grown
from lograft.spark.pipelines.json_values import (
    declared,
    parsed,
    schema_of,
    unknown_fields,
    with_unknown_fields,
)
from lograft.spark.pipelines.settings import Lake, Value

LOGGER: Final = logging.getLogger(__name__)

_SCHEMA: Final = "_schema.json"


class Parsed(NamedTuple):
    #: As in `record_frames`.
    frame: DataFrame
    schema: StructType


class Values(Protocol):
    def check(self, spark: SparkSession) -> None:
        """Before anything is read. Raises InvalidConfig."""

    def parse(self, records: DataFrame) -> Parsed: ...


def values_of(asked: Lake, folder: BatchTable, say: Callable[[str], None]) -> Values:
    if asked.value.format == "json":
        return JsonValues(asked.schema, folder, say)
    return CodedValues(asked.value, folder)


class JsonValues:
    """The schema is declared, or inferred from the first records and grown with new fields."""

    def __init__(self, text: str | None, folder: BatchTable, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._is_declared = text is not None
        self._schema = _stored(folder) if text is None else declared(text)

    def __getstate__(self) -> dict[str, Any]:
        """Spark Connect sends it to the server, where nobody hears what it says."""
        return self.__dict__ | {"_say": LOGGER.info}

    def check(self, spark: SparkSession) -> None:
        pass

    def parse(self, records: DataFrame) -> Parsed:
        schema = self._schema_for(records)
        return Parsed(parsed(records, schema), schema)

    def _schema_for(self, records: DataFrame) -> StructType:
        """The one that all files of the table fit in, written down before the first of them."""
        known = self._schema
        if self._is_declared:
            assert known is not None
            return known
        found = schema_of(records) if known is None else known
        news: list[tuple[str, ...]] = []
        # A sample need not have every field: what it shows is added until nothing is left.
        while unknown := unknown_fields(records, found):
            more = grown(found, schema_of(with_unknown_fields(records, unknown)))
            if more == found:
                break
            found = more
            news += unknown
        if found == known:
            return found
        if known is not None and known.fields:
            names = sorted({".".join(path) for path in news})
            self._say(f"new fields: {', '.join(names)}")
        self._folder.write_json(found.jsonValue(), _SCHEMA)
        self._schema = found
        return found


class CodedValues:
    """The schema is that of a file; a later one may have more fields."""

    def __init__(self, asked: Value, folder: BatchTable) -> None:
        self._asked = asked
        self._decoder = decoder_of(asked)
        self._folder = folder

    def check(self, spark: SparkSession) -> None:
        seen = check_decodes(spark, self._decoder, self._asked)
        known = _stored(self._folder)
        if known is None:
            self._folder.write_json(seen.jsonValue(), _SCHEMA)
            return
        others = changed(known, seen)
        if others:
            raise InvalidConfig(
                f"the table has column {others[0]} with another type than the schema's file: a"
                " column never changes its type, so take another folder or another name"
            )
        self._folder.write_json(grown(known, seen).jsonValue(), _SCHEMA)

    def parse(self, records: DataFrame) -> Parsed:
        frame = decoded_values(records, self._decoder, skip_bytes=self._asked.skip_bytes)
        return Parsed(frame, schema_of_fields(frame))


def _stored(folder: BatchTable) -> StructType | None:
    stored = folder.read_json(_SCHEMA)
    return None if stored is None else StructType.fromJson(stored)
