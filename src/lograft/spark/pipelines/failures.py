"""Why a pipeline has failed, in a sentence. Spark tells it in pages: stack traces of the JVM, and
in their midst the one of a Python process, which ends with what our own code has said. Pure."""

import re
from typing import Final

from lograft.model.errors import LograftError

#: The last line of a Python process's stack trace, if one of our exceptions ended it.
_OURS: Final = re.compile(r"^(?:.*\s)?lograft(?:\.\w+)+: (.+)$", re.MULTILINE)
#: What Spark puts around its own sentences.
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")


class PipelineFailed(LograftError):
    """Spark has given up; what it said is this error's cause."""


def explained(error: Exception) -> PipelineFailed:
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return PipelineFailed("Spark's Java process has ended in the middle of the run")
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return PipelineFailed(_NOISE.sub("", ours[-1].strip()))
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return PipelineFailed(_NOISE.sub("", first.strip()))


def is_sparks(error: Exception) -> bool:
    """Our own clients have errors of their own: a socket's is that of the way to the JVM."""
    is_of_theirs = type(error).__module__.split(".")[0] in ("pyspark", "py4j")
    return is_of_theirs or isinstance(error, ConnectionError)
