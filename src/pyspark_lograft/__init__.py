"""Found by Spark through its name (`pyspark_…`, with a `DefaultSource`), where `python3` on PATH or
PYSPARK_PYTHON is an interpreter that has Lograft; `lograft.spark.register` works everywhere.

An import error in here would show as an unknown format only, so it is kept and told by the first
query instead.
"""

try:
    from lograft.spark.source import LograftDataSource as DefaultSource
except ImportError as error:
    from lograft.spark.unavailable import unavailable

    DefaultSource = unavailable(error)  # type: ignore[assignment, misc]

__all__ = ["DefaultSource"]
