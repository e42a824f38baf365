"""pytest fixtures, which are available wherever Lograft is installed.

def test_it(lograft_cluster: Cluster) -> None:
    consumer = AnyKafkaClient(lograft_cluster.bootstrap_servers)

@pytest.mark.lograft(nodes=3, properties={"min.insync.replicas": "2"})
def test_three(lograft_cluster: Cluster) -> None: ...
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lograft.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "lograft(nodes, properties, seed, security, users): the cluster of the fixture"
        " lograft_cluster",
    )


@pytest.fixture
def lograft_cluster(
    request: pytest.FixtureRequest, lograft_clusters: "Callable[..., Cluster]"
) -> "Cluster":
    """A cluster for a single test: one node, or as given by the marker `lograft`."""
    mark = request.node.get_closest_marker("lograft")
    options: dict[str, Any] = {} if mark is None else mark.kwargs
    return lograft_clusters(*(() if mark is None else mark.args), **options)


@pytest.fixture
def lograft_client_settings(lograft_cluster: "Cluster") -> "Callable[..., dict[str, str]]":
    """A function that returns the settings of a client, `lograft_client_settings("alice")`."""
    return lograft_cluster.client_settings


@pytest.fixture
def lograft_bootstrap_servers(lograft_cluster: "Cluster") -> str:
    return lograft_cluster.bootstrap_servers


@pytest.fixture
def lograft_clusters() -> "Iterator[Callable[..., Cluster]]":
    """A function that starts clusters, `lograft_clusters(nodes=3)`; they stop after the test."""
    # Not at the top: pytest loads this module also for tests that do not use Lograft.
    from lograft.testing.cluster import Cluster

    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(Cluster(*args, **options))


@pytest.fixture(scope="session")
def lograft_server() -> "Iterator[Cluster]":
    """A node that is shared by tests that inject no faults; each should use its own topics."""
    from lograft.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
