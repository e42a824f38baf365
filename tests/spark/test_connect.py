"""Spark Connect: the program has no JVM, the server runs what it is sent."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.spark.topics import Topics

#: Each is a start of Spark more: `make interop` has them.
pytestmark = pytest.mark.interop

JOB = Path(__file__).with_name("connect_job.py")
#: A declarative pipeline, as `spark-pipelines` runs it.
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    stream = spark.readStream.format("lograft").option("kafka.bootstrap.servers", "{bootstrap}")
    return stream.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()
"""


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def topic(topics: Topics, new_topic: Callable[..., str]) -> str:
    name = new_topic(2)
    topics.fill(name, [json.dumps({"id": number}) for number in range(100)])
    return name


def test_a_pipeline_on_spark_connect(topics: Topics, topic: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    run(sys.executable, str(JOB), topics.bootstrap, topic, str(folder), folder=tmp_path)
    files = [str(file) for file in folder.glob("batch=*/**/*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table(columns=["id"])
    assert sorted(rows.column("id").to_pylist()) == list(range(100))


def test_a_declarative_pipeline(topics: Topics, topic: str, tmp_path: Path) -> None:
    code = PIPELINE.format(bootstrap=topics.bootstrap, topic=topic)
    (tmp_path / "orders.py").write_text(code)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: {tmp_path.as_uri()}/storage\n"
        "libraries:\n  - glob:\n      include: orders.py\n"
    )
    program = str(Path(sys.executable).with_name("spark-pipelines"))
    run(program, "run", "--spec", str(tmp_path / "spark-pipeline.yml"), folder=tmp_path)
    files = [str(file) for file in (tmp_path / "spark-warehouse").rglob("*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table(columns=["offset"])
    assert rows.num_rows == 100
