"""Tests of the error message extracted from a Spark error."""

import pytest
from py4j.protocol import Py4JNetworkError

from lograft.spark.pipelines.failures import is_spark_error, to_pipeline_failed

STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: Traceback (most recent call last):
  File "/lib/lograft/spark/data_loss.py", line 57, in check_exists
    raise RecordsLost(
lograft.spark.data_loss.RecordsLost: topic 'x' does not exist SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: lake [id = 1, runId = 2]
"""
ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `at` cannot be resolved. \
SQLSTATE: 42703;
'Project [*]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STREAM, "topic 'x' does not exist"),
        (
            ANALYSIS,
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `at` cannot be resolved.",
        ),
        ("", "ValueError"),
    ],
)
def test_failure_is_reduced_to_one_sentence(text: str, message: str) -> None:
    assert str(to_pipeline_failed(ValueError(text))) == message


@pytest.mark.parametrize("error", [Py4JNetworkError("no response"), ConnectionRefusedError()])
def test_exit_of_the_jvm_is_reported(error: Exception) -> None:
    assert is_spark_error(error)
    assert str(to_pipeline_failed(error)) == "Spark's Java process exited during the run"
