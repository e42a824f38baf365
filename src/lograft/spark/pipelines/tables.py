"""Table formats of a lake: plain Parquet files, Delta and Iceberg.

Delta and Iceberg tables are written through `deltalake` and `pyiceberg` (no jar), which load a
batch into the driver's memory: limit it with max_bytes_per_trigger. Both store the ID of the last
batch in the table's log, atomically with its rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.folders import BatchTable

#: Smaller batches of plain files are compacted.
SMALL_BYTES: Final = 128 << 20
#: Application ID in Delta's log.
_APPLICATION: Final = "lograft-lake"
_BATCH_PROPERTY: Final = "lograft-batch"


class TableWriter(Protocol):
    def has(self, batch_id: int) -> bool: ...

    def write(self, rows: DataFrame, batch_id: int) -> None: ...

    def compact(self, spark: SparkSession) -> None: ...


def table_writer(kind: str, folder: BatchTable, partition_by: tuple[str, ...]) -> TableWriter:
    if kind == "parquet":
        return ParquetWriter(folder, partition_by)
    if kind == "delta":
        return DeltaWriter(folder, partition_by)
    return IcebergWriter(folder)


class ParquetWriter:
    def __init__(self, folder: BatchTable, partition_by: tuple[str, ...]) -> None:
        self._folder = folder
        self._partition_by = partition_by

    def has(self, batch_id: int) -> bool:
        return self._folder.has(batch_id)

    def write(self, rows: DataFrame, batch_id: int) -> None:
        staged = self._folder.create_staging(f"batch-{batch_id}")
        rows.write.partitionBy(*self._partition_by).parquet(staged)
        self._folder.add(batch_id)

    def compact(self, spark: SparkSession) -> None:
        """Merges small batches into one with one file per partition, so the cost of a compaction
        does not grow with the table."""
        batches = self._folder.small_batches(SMALL_BYTES)
        filled = [batch_id for batch_id in batches if self._folder.has_files(batch_id)]
        if len(batches) < 2 or not filled:
            return
        paths = [self._folder.path(self._folder.part(batch_id)) for batch_id in filled]
        reader = spark.read.option("mergeSchema", "true").option("basePath", self._folder.place)
        with _without_type_inference(spark):
            rows = reader.parquet(*paths).drop("batch")
        staged = f"compact-{batches[-1]}"
        parts = [name for name in self._partition_by if name in rows.columns]
        merged = rows.repartition(*parts) if parts else rows.coalesce(1)
        merged.write.partitionBy(*parts).parquet(self._folder.create_staging(staged))
        self._folder.replace(batches, staged)


@contextmanager
def _without_type_inference(spark: SparkSession) -> Iterator[None]:
    """Reads partition columns as text; Spark would infer the number 7 from a folder `code=007`."""
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        yield
    finally:
        spark.conf.set(setting, str(before))


class DeltaWriter:
    def __init__(self, folder: BatchTable, partition_by: tuple[str, ...]) -> None:
        try:
            import deltalake  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise InvalidConfig("lake.format delta needs the package deltalake") from None
        self._delta: Any = deltalake
        self._place = folder.path("delta")
        self._partition_by = partition_by

    def has(self, batch_id: int) -> bool:
        delta = self._delta
        if not delta.DeltaTable.is_deltatable(self._place):
            return False
        last = delta.DeltaTable(self._place).transaction_version(_APPLICATION)
        return last is not None and batch_id <= last

    def write(self, rows: DataFrame, batch_id: int) -> None:
        delta = self._delta
        transaction = delta.Transaction(app_id=_APPLICATION, version=batch_id)
        delta.write_deltalake(
            self._place,
            rows.toArrow(),
            mode="append",
            schema_mode="merge",
            partition_by=list(self._partition_by),
            commit_properties=delta.CommitProperties(app_transactions=[transaction]),
        )

    def compact(self, spark: SparkSession) -> None:
        self._delta.DeltaTable(self._place).optimize.compact()


class IcebergWriter:
    """Writes the table `lograft.lake` of a catalog in the folder."""

    _NAME: Final = "lograft.lake"

    def __init__(self, folder: BatchTable) -> None:
        try:
            from pyiceberg.catalog.sql import (  # type: ignore[import-not-found, unused-ignore]
                SqlCatalog,
            )
        except ImportError:
            raise InvalidConfig(
                "lake.format iceberg needs the package pyiceberg[sql-sqlite]"
            ) from None
        place = Path(folder.root)
        self._catalog: Any = SqlCatalog(
            "lograft", uri=f"sqlite:///{place}/_catalog.db", warehouse=place.as_uri()
        )
        self._catalog.create_namespace_if_not_exists("lograft")

    def has(self, batch_id: int) -> bool:
        if not self._catalog.table_exists(self._NAME):
            return False
        # Snapshots of table maintenance have no batch ID.
        batch_ids = (
            snapshot.summary[_BATCH_PROPERTY]
            for snapshot in self._catalog.load_table(self._NAME).snapshots()
            if snapshot.summary is not None
        )
        return any(batch_id <= int(last) for last in batch_ids if last is not None)

    def write(self, rows: DataFrame, batch_id: int) -> None:
        arrow = rows.toArrow()
        table = self._catalog.create_table_if_not_exists(self._NAME, schema=arrow.schema)
        with table.update_schema() as update:
            update.union_by_name(arrow.schema)
        table.append(arrow, snapshot_properties={_BATCH_PROPERTY: str(batch_id)})

    def compact(self, spark: SparkSession) -> None:
        """Does nothing: Iceberg's own maintenance compacts tables."""
