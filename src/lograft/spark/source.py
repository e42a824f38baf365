"""`format("lograft")`: what Spark asks for a reader or a writer. Lives in short-lived processes of
the driver; options are checked here, before anything is planned. Each process imports what it needs
and no more: imports are most of what a small query waits for."""

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
        # Spark does not say here whether this becomes a batch or a stream: the reader checks all.
        return spark_schema(read_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from lograft.spark.batch_reader import BatchReader

        return BatchReader(read_options(self.options, is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from lograft.spark.stream_reader import StreamReader

        return StreamReader(read_options(self.options, is_streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidConfig("a topic cannot be overwritten: write with mode append")
        from lograft.spark.writers import BatchWriter

        return BatchWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from lograft.spark.writers import StreamWriter

        return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options)
        check_columns(schema, options.topic)
        return options
