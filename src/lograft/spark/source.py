"""Entry point of `format("lograft")`, from which Spark requests readers and writers.

Runs in short-lived processes of the driver. Options are validated here, before planning. Imports
are deferred, because they are most of the latency of a small query."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.options import WriteOptions, read_columns, read_options, write_options
from lograft.spark.rows import check_columns
from lograft.spark.schema import spark_schema


class LograftDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "lograft"

    def schema(self) -> StructType:
        # It is not known yet whether this is a batch or a stream; the reader validates all options.
        return spark_schema(read_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from lograft.spark.batch_reader import BatchReader

        return BatchReader(read_options(self.options, is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from lograft.spark.stream_reader import StreamReader

        return StreamReader(read_options(self.options, is_streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidConfig("a topic cannot be overwritten: use mode append")
        from lograft.spark.writers import BatchWriter

        return BatchWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from lograft.spark.writers import StreamWriter

        return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options)
        check_columns(schema, options.topic)
        return options
