"""Fixtures of the client and interop tests: a server of each kind, and fresh topic names."""

import contextlib
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.compatibility.java_tools import JavaTools
from tests.compatibility.servers import (
    CONFORMANCE_KINDS,
    KINDS,
    Kind,
    Server,
    kinds_under_test,
)
from tools.kafka_jars import JarsMissing, spark_connector_jars, spark_format_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

with warnings.catch_warnings():  # kafka-python reads its files in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

#: The output of these servers is shown below the traceback of a failed test.
running: list[Server] = []
#: All client tests share one server of each kind: starting a JVM for each would take minutes.
SHARED_SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    # Tests write old records, which no cleanup may delete during a test. The first setting delays
    # Kafka's first cleanup, the second Lograft's.
    "log.initial.task.delay.ms": "3600000",
    "log.retention.check.interval.ms": "3600000",
    # Short intervals for groups and transactions.
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other clients leave sockets open when their broker is killed. The garbage collector closes
    them in a later test, which must not fail for that reason."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        is_ours = metafunc.definition.get_closest_marker("conformance") is not None
        kinds = kinds_under_test(CONFORMANCE_KINDS if is_ours else KINDS)
        metafunc.parametrize("server", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    kind = cast(Kind, request.param)
    with serving(
        Server.of(kind, tmp_path_factory.mktemp(kind), settings=SHARED_SETTINGS)
    ) as started:
        yield started


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Creates servers for a single test, and stops those that are still running at the end."""
    servers: list[Server] = []

    def make(kind: Kind, *, settings: dict[str, str] | None = None) -> Server:
        each = Server.of(kind, tmp_path / f"{kind}-{len(servers)}", settings=settings)
        servers.append(each)
        running.append(each)
        return each

    yield make
    for each in servers:
        each.kill()
        running.remove(each)


@pytest.fixture(scope="session")
def java_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTools]:
    """The command line tools of Kafka 4.3.1."""
    tools = JavaTools(tmp_path_factory.mktemp("java"))
    yield tools
    tools.close()


@pytest.fixture(scope="session")
def spark_packages() -> dict[str, Path]:
    """Spark's packages for other formats, as far as Maven Central has them."""
    found = {}
    for kind in ("avro", "protobuf"):
        with contextlib.suppress(JarsMissing):
            found[kind] = spark_format_jars(kind)
    return found


@pytest.fixture(scope="session")
def spark(spark_packages: dict[str, Path]) -> Iterator["SparkSession"]:
    """One session for all tests: a JVM loads jars only when it starts."""
    with warnings.catch_warnings():
        # Deprecated in Python.
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        folders = [spark_connector_jars(), *spark_packages.values()]
        jars = ",".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.python.authenticate.socketTimeout", "120s")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


class serving:
    """Runs a server, and adds it to the servers whose output is reported."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def __enter__(self) -> Server:
        running.append(self.server)
        return self.server.start()

    def __exit__(self, *_error: object) -> None:
        running.remove(self.server)
        self.server.stop()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names that no other test of the session uses."""
    base = request.node.originalname.removeprefix("test_")[:60]
    counter = itertools.count()
    serial = next(_serials)
    return lambda: f"{base}-{serial}-{next(counter)}"


_serials = itertools.count()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for each in running:
            report.sections.append((f"{each.kind} server", each.log_tail()))
