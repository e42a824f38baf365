"""Registers `format("lograft")` with a Spark session.

Spark also discovers the format by itself (`pyspark_lograft`), but it searches with the `python3`
on PATH. A program started as `.venv/bin/python job.py` runs on a different interpreter, unless the
environment is activated or PYSPARK_PYTHON is set.
"""

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Interpreter of Spark's Python processes if PYSPARK_PYTHON is not set.
_SPARK_DEFAULT_INTERPRETER: Final = "python3"
#: Session setting that names the interpreter. PySpark itself honours it only for programs started
#: by spark-submit.
_INTERPRETER_SETTING: Final = "spark.pyspark.python"


def register(spark: "SparkSession") -> None:
    """Makes `format("lograft")` available in `spark`.

    On a local master, Spark's Python processes also run with this program's interpreter, unless
    PYSPARK_PYTHON or spark.pyspark.python names another one. The executors of a cluster have
    their own environments, where PYSPARK_PYTHON must name an interpreter with Lograft installed.
    """
    from pyspark.sql.utils import is_remote

    from lograft.spark.source import LograftDataSource

    if not is_remote():  # with Spark Connect, the server chooses the interpreter
        _choose_interpreter(spark.sparkContext)
    spark.dataSource.register(LograftDataSource)


def _choose_interpreter(context: "SparkContext") -> None:
    if context.pythonExec != _SPARK_DEFAULT_INTERPRETER:
        return
    configured = context.getConf().get(_INTERPRETER_SETTING)
    if configured is not None:
        context.pythonExec = configured
    elif (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
