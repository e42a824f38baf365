"""Lets Spark discover `format("lograft")`: Spark searches for packages named `pyspark_…` with a
`DefaultSource`, using the interpreter in PYSPARK_PYTHON or `python3` on PATH. If that interpreter
does not have Lograft installed, call `lograft.spark.register`.

Spark would report an import error in this package as an unknown format, so the error is raised by
the first query instead.
"""

try:
    from lograft.spark.source import LograftDataSource as DefaultSource
except ImportError as error:
    from lograft.spark.unavailable import unavailable_source

    DefaultSource = unavailable_source(error)  # type: ignore[assignment, misc]

__all__ = ["DefaultSource"]
