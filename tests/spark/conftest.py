"""One node and one Spark session, shared by all tests of the source, the sink and the pipelines,
because both are slow to start."""

import itertools
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compatibility.servers import Server
from tests.spark.topics import Topics

with warnings.catch_warnings():  # PySpark imports deprecated modules
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

#: Short transactions, and no retention during a test.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "3600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
_serials = itertools.count()


#: Tests that call the source and the sink without starting Spark.
WITHOUT_JAVA = ("test_readers.py", "test_staging.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    has_java = shutil.which("java") is not None
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.timeout(300))
        if not has_java and item.path.name not in WITHOUT_JAVA:
            item.add_marker(pytest.mark.skip(reason="Spark needs Java 17"))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("node")
    with Server.of("lograft", folder, settings=SETTINGS).started() as server:
        yield server


@pytest.fixture(scope="session")
def topics(node: Server) -> Iterator[Topics]:
    with Topics(node.bootstrap) as client:
        yield client


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            # For many small queries, full compilation takes longer than execution.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.codegen.wholeStage", "false")
            # Python processes may start slowly on a busy machine.
            .config("spark.python.authenticate.socketTimeout", "120s")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def new_topic(topics: Topics) -> Callable[[int], str]:
    """Creates topics with unique names and the given number of partitions."""

    def create(partitions: int = 2) -> str:
        name = f"topic-{next(_serials)}"
        topics.create(name, partitions)
        return name

    return create
