"""The fixtures, in a pytest of their own."""

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
    assert lograft_cluster.ask(2, lambda node: node.config.text("min.insync.replicas")) == "2"

def test_several_clusters(lograft_clusters):
    one, other = lograft_clusters(), lograft_clusters(nodes=1)
    assert one.bootstrap_servers != other.bootstrap_servers

def test_a_node_for_all(lograft_server):
    lograft_server.create_topic("one")

def test_the_same_node(lograft_server):
    assert lograft_server.leader_of("one", 0) == 1

def test_a_node_that_is_broken(lograft_cluster):
    lograft_cluster.ask(1, lambda node: node._halt("a test"))
    lograft_cluster.wait_ended(1)
"""


def test_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ended = subprocess.run(
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
    # The broken node is told when its fixture ends.
    assert "6 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "node 1 halted: a test" in ended.stdout


def test_tests_that_do_not_use_it_do_not_load_it() -> None:
    program = (
        "import sys, lograft.testing.plugin\n"
        "assert 'asyncio' not in sys.modules and 'lograft.node' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
