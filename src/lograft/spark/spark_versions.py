"""Substitutes for classes missing in PySpark 4.1, so that the source supports 4.1 to 4.3."""

from typing import Final

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1: a micro-batch reads all available records

    class ReadLimit:  # type: ignore[no-redef]
        pass

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


#: Whether this version of Spark supports read limits for micro-batches.
LIMITS_BATCHES: Final = ReadLimit.__module__.startswith("pyspark.")

__all__ = [
    "LIMITS_BATCHES",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
