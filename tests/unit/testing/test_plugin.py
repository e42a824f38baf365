"""The pytest fixtures, in a separate pytest process."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from lograft.client.blocking import Producer

def test_one_node(lograft_cluster, lograft_bootstrap_servers):
    assert lograft_cluster.bootstrap_servers == lograft_bootstrap_servers
    lograft_cluster.create_topic("t")
    with Producer(bootstrap_servers=lograft_bootstrap_servers) as producer:
        assert producer.send("t", b"v").offset == 0

@pytest.mark.lograft(nodes=3, properties={"min.insync.replicas": "2"})
def test_three_nodes(lograft_cluster):
    assert lograft_cluster.bootstrap_servers.count(",") == 2
    assert lograft_cluster.call(2, lambda node: node.config.text("min.insync.replicas")) == "2"

def test_several_clusters(lograft_clusters):
    first, other = lograft_clusters(), lograft_clusters(nodes=1)
    assert first.bootstrap_servers != other.bootstrap_servers

def test_a_shared_node(lograft_server):
    lograft_server.create_topic("one")

def test_the_same_node(lograft_server):
    assert lograft_server.leader_of("one", 0) == 1

def test_a_node_that_fails(lograft_cluster):
    lograft_cluster.call(1, lambda node: node._halt("a test"))
    lograft_cluster.wait_ended(1)
"""


def test_fixtures_start_and_stop_clusters(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    result = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-q", "--strict-markers", "-p", "lograft.testing.plugin"),
            *("-p", "no:cacheprovider", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # The failed node is reported when its fixture is torn down.
    assert "6 passed, 1 error" in result.stdout, result.stdout + result.stderr
    assert "node 1 halted: a test" in result.stdout


def test_the_plugin_does_not_import_the_broker() -> None:
    program = (
        "import sys, lograft.testing.plugin\n"
        "assert 'asyncio' not in sys.modules and 'lograft.node' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
