"""Tests with Spark Connect, where the program has no JVM and the server runs the query."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from tests.compatibility.servers import free_port
from tests.spark.topics import Topics
from tests.support.waiting import wait_until

#: Each test starts Spark once more, so they run only in `make interop`.
pytestmark = pytest.mark.interop

JOB = Path(__file__).with_name("connect_job.py")
STOP_JOB = Path(__file__).with_name("connect_stop_job.py")
LOGRAFT = str(Path(sys.executable).with_name("lograft"))
START_SECONDS_MAX = 240
#: A declarative pipeline for `spark-pipelines`.
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    stream = spark.readStream.format("lograft").option("kafka.bootstrap.servers", "{bootstrap}")
    return stream.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def run(*command: str, folder: Path) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=folder, env=environment()
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


@pytest.fixture
def topic(topics: Topics, new_topic: Callable[..., str]) -> str:
    name = new_topic(2)
    topics.fill(name, [json.dumps({"id": number}) for number in range(100)])
    return name


def test_pipeline_runs_on_spark_connect(topics: Topics, topic: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    run(sys.executable, str(JOB), topics.bootstrap, topic, str(folder), folder=tmp_path)
    files = [str(file) for file in folder.glob("batch=*/**/*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table(columns=["id"])
    assert sorted(rows.column("id").to_pylist()) == list(range(100))


def test_source_works_in_a_declarative_pipeline(topics: Topics, topic: str, tmp_path: Path) -> None:
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


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Runs a Spark Connect server in its own process; yields its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
    }
    program = str(Path(sys.executable).with_name("spark-submit"))
    command = [program, "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with (folder / "connect.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment() | {"SPARK_HOME": str(Path(pyspark.__file__).parent)},
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: server.poll() is None and is_open(port),
            "the server listens",
            seconds_max=START_SECONDS_MAX,
        )
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def pipeline_file(folder: Path, topics: Topics, topic: str, server: str, trigger: str) -> str:
    file = folder / f"{trigger.replace(' ', '-')}.toml"
    file.write_text(
        f'[source]\nbootstrap = "{topics.bootstrap}"\ntopics = ["{topic}"]\n'
        f'[spark]\nremote = "{server}"\ntrigger = "{trigger}"\n'
        f'[lake]\nfolder = "{folder}/lake"\ncompact_every = 0\n'
    )
    return str(file)


@pytest.mark.timeout(900)
def test_pipeline_on_a_connect_server_stops_and_resumes(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    with connect_server(tmp_path) as server:
        config = pipeline_file(tmp_path, topics, topic, server, "1 second")
        running = subprocess.Popen(
            [LOGRAFT, "pipeline", "run", "lake", "--config", config],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(),
        )
        try:
            wait_until(
                lambda: running.poll() is not None or any(lake.glob("batch=0/**/*.parquet")),
                "a batch is written",
                seconds_max=START_SECONDS_MAX,
            )
            stopped = run(LOGRAFT, "pipeline", "stop", "lake", "--config", config, folder=tmp_path)
            output, _ = running.communicate(timeout=60)
        finally:
            running.kill()
            running.wait()
        assert running.returncode == 0, output
        assert "stopped on request" in output
        assert stopped.startswith("lake: stopped after batch")
        topics.fill(topic, [json.dumps({"id": number}) for number in range(100, 150)])
        config = pipeline_file(tmp_path, topics, topic, server, "available-now")
        run(LOGRAFT, "pipeline", "run", "lake", "--config", config, folder=tmp_path)
    files = [str(file) for file in lake.glob("batch=*/**/*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table(columns=["id"])
    assert sorted(rows.column("id").to_pylist()) == list(range(150))


def test_work_other_than_a_query_stops_on_spark_connect(tmp_path: Path) -> None:
    run(sys.executable, str(STOP_JOB), folder=tmp_path)
