"""The sentence in the pages that Spark writes."""

import pytest
from py4j.protocol import Py4JNetworkError

from lograft.spark.pipelines.failures import explained, is_sparks

STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: Traceback (most recent call last):
  File "/lib/lograft/spark/data_loss.py", line 57, in check_there
    raise RecordsLost(
lograft.spark.data_loss.RecordsLost: topic 'x' is not in the cluster SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: lake [id = 1, runId = 2]
"""
ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `at` cannot be resolved. \
SQLSTATE: 42703;
'Project [*]
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (STREAM, "topic 'x' is not in the cluster"),
        (
            ANALYSIS,
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `at` cannot be resolved.",
        ),
        ("", "ValueError"),
    ],
)
def test_a_failure_is_a_sentence(text: str, sentence: str) -> None:
    assert str(explained(ValueError(text))) == sentence


@pytest.mark.parametrize("error", [Py4JNetworkError("no answer"), ConnectionRefusedError()])
def test_a_dead_jvm_is_a_sentence_too(error: Exception) -> None:
    assert is_sparks(error)
    assert str(explained(error)) == "Spark's Java process has ended in the middle of the run"
