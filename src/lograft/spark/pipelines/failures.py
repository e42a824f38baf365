"""Reduces a Spark error to one sentence. Spark's message is pages of JVM stack traces, which
contain the traceback of a Python process and at its end the message of Lograft's own exception.
Pure."""

import re
from typing import Final

from lograft.model.errors import LograftError

#: Last line of a Python traceback whose exception is one of Lograft's.
_LOGRAFT_ERROR: Final = re.compile(r"^(?:.*\s)?lograft(?:\.\w+)+: (.+)$", re.MULTILINE)
#: Suffix that Spark adds to its messages.
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")


class PipelineFailed(LograftError):
    """The Spark query failed. The cause of this exception is Spark's own."""


def to_pipeline_failed(error: Exception) -> PipelineFailed:
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return PipelineFailed("Spark's Java process exited during the run")
    text = str(error)
    messages = _LOGRAFT_ERROR.findall(text)
    if messages:
        return PipelineFailed(_NOISE.sub("", messages[-1].strip()))
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return PipelineFailed(_NOISE.sub("", first.strip()))


def is_spark_error(error: Exception) -> bool:
    """Returns whether Spark raised the error. Lograft's clients raise their own exception types, so
    a ConnectionError is from the connection to the JVM."""
    is_from_pyspark = type(error).__module__.split(".")[0] in ("pyspark", "py4j")
    return is_from_pyspark or isinstance(error, ConnectionError)
