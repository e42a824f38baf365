"""Tests with separate executor processes: a master and two workers."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.spark.reading import read_committed_values
from tests.spark.topics import Topics

PROGRAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, origin, target, folder, path = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.executorEnv.PYTHONPATH", path)
    .config("spark.executor.memory", "512m")
    .config("spark.python.authenticate.socketTimeout", "120s")
    .getOrCreate()
)
base = {"kafka.bootstrap.servers": bootstrap}
stream = spark.readStream.format("lograft").options(**base, subscribe=origin)
query = (
    stream.options(startingOffsets="earliest", minPartitions=4).load()
    .selectExpr("key", "concat(cast(value as string), '!') value")
    .writeStream.format("lograft")
    .options(**base, topic=target, delivery="exactly-once", checkpointLocation=folder)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
"""


def test_stream_runs_in_separate_executors(
    topics: Topics, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    origin, target = new_topic(2), new_topic(2)
    values = [f"{number:04}" for number in range(500)]
    topics.fill(origin, values)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, topics.bootstrap, origin, target, str(tmp_path), path],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert read_committed_values(topics, target, 2) == [f"{value}!" for value in values]
