"""What PySpark 4.1 does not have yet, so that one source serves 4.1 to 4.3."""

from typing import Final

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1: a micro-batch takes all there is

    class ReadLimit:  # type: ignore[no-redef]
        pass

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


#: Whether Spark asks how much a micro-batch may take.
LIMITS_BATCHES: Final = ReadLimit.__module__.startswith("pyspark.")

__all__ = [
    "LIMITS_BATCHES",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
