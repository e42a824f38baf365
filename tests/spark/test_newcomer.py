"""Runs the README's Spark example as a new user would: with the interpreter of an environment that
is not activated."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from confluent_kafka import TopicPartition

from tests.compatibility.librdkafka import consumer_of, read_to_end
from tests.spark.topics import Topics

README = Path(__file__).parents[2] / "README.md"
GUIDE = README.with_name("docs") / "spark.md"


def environment_not_activated() -> dict[str, str]:
    """Returns an environment in which only Java is on PATH, not the interpreter of the tests."""
    java = shutil.which("java")
    assert java is not None
    folders = [str(Path(java).parent), "/usr/bin", "/bin"]
    path = os.pathsep.join(
        folder for folder in folders if folder != str(Path(sys.executable).parent)
    )
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    return kept | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def spark_example() -> str:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (example,) = (code for code in examples if "pyspark" in code)
    return str(example)


def run(job: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(job)],
        cwd=job.parent,
        env=environment_not_activated(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_readme_example_runs_in_an_environment_that_is_not_activated(
    topics: Topics, tmp_path: Path
) -> None:
    topics.create("numbers", 1)
    topics.fill("numbers", [str(number) for number in range(1000)])
    job = tmp_path / "job.py"
    job.write_text(spark_example().replace("localhost:9092", topics.bootstrap))
    result = run(job)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout == "499500\n"


def test_first_examples_of_the_guide_run(topics: Topics, tmp_path: Path) -> None:
    """docs/spark.md: the session, and a stream from topic to topic."""
    for topic in ("orders", "shouted"):
        topics.create(topic, 1)
    topics.fill("orders", ["tea", "jam"])
    session, stream = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[:2]
    job = tmp_path / "job.py"
    code = f"{session}\n{stream}\nquery.awaitTermination()\nspark.stop()\n"
    code = code.replace("localhost:9092", topics.bootstrap)
    job.write_text(code.replace("/tmp/shouting", str(tmp_path / "checkpoint")))
    result = run(job)
    assert result.returncode == 0, result.stderr[-4000:]
    with consumer_of(topics.bootstrap) as consumer:
        consumer.assign([TopicPartition("shouted", 0, 0)])
        values = {message.value() for message in read_to_end(consumer)}
    assert values == {b"JAM", b"TEA"}


def test_register_respects_the_interpreter_in_the_session_configuration(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "from pyspark.sql import SparkSession\n"
        "from lograft.spark import register\n"
        'builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")\n'
        'spark = builder.config("spark.pyspark.python", "/opt/other/python").getOrCreate()\n'
        "register(spark)\n"
        "print(spark.sparkContext.pythonExec)\n"
        "spark.stop()\n"
    )
    result = run(job)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout == "/opt/other/python\n"
