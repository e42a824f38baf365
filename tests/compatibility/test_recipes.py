"""The programs in docs/recipes run unchanged: the libraries of each page are installed into
`.cache/recipes`, and its programs run with a node."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.compatibility.librdkafka import admin_of, create_topic, outcome, produce, read, values_of
from tests.compatibility.servers import SMALL_JVM, Server, free_port, full_run_only
from tools.kafka_jars import CACHE as KAFKA_CACHE
from tools.kafka_jars import REPOSITORY, ensure_program, jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200), full_run_only()]

PAGES: Final = REPOSITORY / "docs" / "recipes"
CACHE: Final = KAFKA_CACHE.parent / "recipes"
ADDRESS: Final = "localhost:9092"
INSTALL_SECONDS_MAX: Final = 900
RESULT_SECONDS_MAX: Final = 180
STOP_SECONDS_MAX: Final = 60
ORDERS: Final = ["tea", "milk", "sugar"]
POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>lograft</groupId>
  <artifactId>recipe</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""


class Page:
    """A page: its programs by language, and the commands that install its libraries."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (PAGES / f"{name}.md").read_text()

    def program(self, language: str, bootstrap: str, *, containing: str = "") -> str:
        """Returns the first program in the language that contains the text, for a node at
        `bootstrap`."""
        blocks = re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)
        return str(next(block for block in blocks if containing in block)).replace(
            ADDRESS, bootstrap
        )

    def command(self, start: str) -> str:
        """Returns the indented command that begins with these words."""
        [command] = re.findall(rf"^    ({start} .*)$", self.text, re.MULTILINE)
        return str(command)

    def environment(self) -> Path:
        """Returns the `bin` folder of a virtual environment with the packages that the page
        installs."""
        requirements = self.command("pip install").removeprefix("pip install ").replace("'", "")
        digest = hashlib.sha256(requirements.encode()).hexdigest()[:8]
        folder = CACHE / f"{self.name}-{digest}"
        if not (folder / ".complete").exists():
            run([sys.executable, "-m", "venv", str(folder)])
            run([str(folder / "bin" / "pip"), "install", "--quiet", *requirements.split()])
            (folder / ".complete").touch()
        return folder / "bin"

    def java_program(self, folder: Path, bootstrap: str) -> list[str]:
        """Compiles the page's Java program; returns the command that runs it."""
        source = self.program("java", bootstrap)
        package = re.search(r"^package (\w+);", source, re.MULTILINE)
        name = f"{package[1]}.Billing" if package else "Billing"
        file = folder / f"{name.replace('.', '/')}.java"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
        dependencies = self.program("xml", bootstrap)
        digest = hashlib.sha256(dependencies.encode()).hexdigest()[:8]
        pom = folder / "pom.xml"
        pom.write_text(POM.format(dependencies=dependencies))
        libraries = f"{jars(CACHE / f'{self.name}-jars-{digest}', pom)}/*"
        run(["javac", "-parameters", "-cp", libraries, "-d", ".", str(file)], folder=folder)
        return ["java", *SMALL_JVM, "-cp", f".:{libraries}", name]


def run(command: list[str], *, folder: Path | None = None) -> str:
    """Returns the output of a command that must succeed, without the environment variables of this
    Python."""
    done = subprocess.run(
        ["nice", "-n", "10", *command],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}\n{done.stdout}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class Program:
    def __init__(self, folder: Path, command: list[str], variables: Mapping[str, str]) -> None:
        self._log = folder / "program.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=clean_environment() | dict(variables),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + RESULT_SECONDS_MAX
        while not is_done():
            assert self._process.poll() is None, f"the program has exited\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"no result\n{self.log_tail()}"
            time.sleep(0.2)

    def stop(self) -> None:
        """Stops the whole process group: PyFlink runs its job in a separate JVM."""
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def log_tail(self) -> str:
        return self._log.read_bytes()[-4000:].decode(errors="replace")


@contextmanager
def running(
    folder: Path, command: list[str], variables: Mapping[str, str] | None = None
) -> Iterator[Program]:
    program = Program(folder, command, variables or {})
    try:
        yield program
    finally:
        program.stop()


@pytest.fixture
def node(new_server: Callable[..., Server]) -> Server:
    """A separate node for each recipe, since all use the same topics."""
    server = new_server("lograft").start()
    for topic in ("orders", "invoices"):
        create_topic(server.bootstrap, topic)
    return server


def check_invoices(node: Server, folder: Path, command: list[str]) -> None:
    """Each order has its invoice, both those before the start of the program and those after it."""
    first, *others = [order.encode() for order in ORDERS]
    produce(node.bootstrap, "orders", [first])
    with running(folder, command) as program:
        program.wait_until(lambda: invoices(node) == ["invoice for tea"])
        produce(node.bootstrap, "orders", others)
        expected = [f"invoice for {order}" for order in ORDERS]
        program.wait_until(lambda: invoices(node) == expected)


def invoices(node: Server) -> list[str]:
    """The committed records."""
    values = values_of(read(node.bootstrap, "invoices"))
    return [value.decode() for value in values if value is not None]


@pytest.mark.parametrize("name", ["faststream", "quix-streams"])
def test_python_program(node: Server, tmp_path: Path, name: str) -> None:
    page = Page(name)
    program = tmp_path / "billing.py"
    program.write_text(page.program("python", node.bootstrap))
    check_invoices(node, tmp_path, [str(page.environment() / "python"), str(program)])


@pytest.mark.parametrize("name", ["flink", "spring-kafka", "kafka-streams"])
def test_java_program(node: Server, tmp_path: Path, name: str) -> None:
    page = Page(name)
    command = page.java_program(tmp_path, node.bootstrap)
    if "```properties" in page.text:
        properties = page.program("properties", node.bootstrap)
        (tmp_path / "application.properties").write_text(properties)
    check_invoices(node, tmp_path, command)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="PyFlink has no wheels for Python 3.13")
def test_pyflink(node: Server, tmp_path: Path) -> None:
    page = Page("flink")
    python = page.environment() / "python"
    ensure_program("mvn", package="maven")
    run([*page.command("mvn").split(), "--batch-mode", "--quiet"], folder=tmp_path)
    program = tmp_path / "billing.py"
    program.write_text(page.program("python", node.bootstrap))
    check_invoices(node, tmp_path, [str(python), str(program)])


def test_airflow(node: Server, tmp_path: Path) -> None:
    page = Page("airflow")
    folder = page.environment()
    dag = tmp_path / "dags" / "orders.py"
    dag.parent.mkdir()
    dag.write_text(page.program("python", node.bootstrap))
    settings = page.program("sh", node.bootstrap)
    script = f"set -e\nexport AIRFLOW_HOME={tmp_path} PATH={folder}:$PATH\n{settings}\npython {dag}"
    for count in (1, 2):
        output = run(["sh", "-c", script], folder=tmp_path)
        assert re.findall("^invoice for one (.*)$", output, re.MULTILINE) == ORDERS
        group = ConsumerGroupTopicPartitions("airflow", [TopicPartition("orders", 0)])
        admin = admin_of(node.bootstrap)
        [offsets] = outcome(admin.list_consumer_group_offsets([group])).values()
        assert [each.offset for each in offsets.topic_partitions] == [count * len(ORDERS)]


def test_apicurio_registry_keeps_schemas_in_a_topic(node: Server, tmp_path: Path) -> None:
    page = Page("apicurio-registry")
    archive = CACHE / "apicurio"
    if not (archive / ".complete").exists():
        archive.mkdir(parents=True, exist_ok=True)
        ensure_program("mvn", package="maven")
        run([*page.command("mvn").split(), "--batch-mode", "--quiet"], folder=archive)
        run(page.command("tar").split(), folder=archive)
        (archive / ".complete").touch()
    port = str(free_port())
    start = page.program("sh", node.bootstrap, containing="java -jar").replace("8080", port)
    register = page.program("sh", node.bootstrap, containing="curl").replace("8080", port)
    registry = f"http://localhost:{port}/apis"
    schema = f"{registry}/registry/v3/groups/default/artifacts/order/versions/1/content"
    for is_first in (True, False):
        with running(archive, ["sh", "-c", start]) as program:
            program.wait_until(lambda: get(f"http://localhost:{port}/health/ready") is not None)
            if is_first:
                run(["sh", "-c", register], folder=tmp_path)
            program.wait_until(lambda: get(schema) == '{"type": "string"}')
            subjects = get(f"{registry}/ccompat/v7/subjects")
            assert subjects is not None
            assert json.loads(subjects) == ["order"]


def test_kafka_exporter(node: Server, tmp_path: Path) -> None:
    page = Page("kafka-exporter")
    ensure_program("go", package="golang")
    go = CACHE / "go"
    variables = clean_environment() | {"GOBIN": str(go / "bin"), "GOPATH": str(go)}
    install = subprocess.run(
        page.command("go install").split(),
        env=variables,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if install.returncode:
        pytest.skip(f"the Go proxy does not serve it: {install.stderr[-300:]}")
    port = str(free_port())
    start = page.program("sh", node.bootstrap).replace("9308", port)
    produce(node.bootstrap, "orders", [order.encode() for order in ORDERS])
    with running(tmp_path, ["sh", "-c", start], variables) as program:
        line = 'kafka_topic_partition_current_offset{partition="0",topic="orders"} 3\n'
        metrics = f"http://localhost:{port}/metrics"
        program.wait_until(lambda: line in (get(metrics) or ""))


def get(url: str) -> str | None:
    """None while the server does not respond."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return str(response.read().decode())
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
