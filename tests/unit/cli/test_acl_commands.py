"""`lograft acls` on a node with an authorizer."""

import json
from collections.abc import Iterator

import pytest

from lograft.model.settings.authorizer import STANDARD_AUTHORIZER
from lograft.testing import Cluster
from tests.unit.cli.test_commands import Run, lograft  # noqa: F401


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with Cluster(properties=settings) as cluster:
        yield cluster


def test_acls_are_added_listed_explained_and_removed(
    cluster: Cluster,
    lograft: Run,  # noqa: F811
) -> None:
    to = ("--bootstrap-server", cluster.bootstrap_servers)
    alice = ("--principal", "User:alice")

    def explain(principal: str, operation: str, topic: str) -> str:
        asked = ("--principal", principal, "--operation", operation, "--topic", topic)
        done = lograft("acls", "explain", *asked, *to)
        assert done.code == 0, done.err
        return done.out.rstrip("\n")

    assert explain("User:alice", "Write", "t") == (
        "User:alice may not perform Write on TOPIC t from 127.0.0.1, because the resource has no"
        " ACLs; this changes if allow.everyone.if.no.acl.found is true. A principal in super.users"
        " may do everything."
    )
    added = lograft(
        "acls", "add", *alice, "--operation", "Write", "--topic", "orders-", "--prefixed", *to
    )
    assert added.code == 0, added.err
    added = lograft("acls", "add", *alice, "--operation", "All", "--topic", "orders-eu", "--deny",
                    "--host", "10.0.0.1", *to)  # fmt: skip
    assert added.code == 0, added.err
    rule = "ALLOW User:alice WRITE TOPIC PREFIXED orders- host *"
    assert explain("User:alice", "describe", "orders-eu") == (
        "User:alice may perform Describe on TOPIC orders-eu from 127.0.0.1, because of the ACL"
        f" {rule}."
    )
    assert "may not perform Write on TOPIC orders-eu" in explain("User:bob", "Write", "orders-eu")
    listed = json.loads(lograft("acls", "list", "--topic", "orders-eu", "--json", *to).out)
    assert [(acl["permission"], acl["name"]) for acl in listed] == [
        ("ALLOW", "orders-"),
        ("DENY", "orders-eu"),
    ]
    assert "PREFIXED" in lograft("acls", "list", *to).out
    removed = lograft("acls", "remove", *alice, "--topic", "orders-eu", *to)
    assert "DENY" in removed.out
    removed = lograft("acls", "remove", *alice, "--topic", "orders-", "--prefixed", *to)
    assert "ALLOW" in removed.out
    assert lograft("acls", "list", *to).out == "No ACLs match.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operation", "Write"), "name one resource: --topic"),
        (("--operation", "Write", "--topic", "t", "--cluster"), "name one resource: --topic"),
        (("--operation", "Rite", "--topic", "t"), "there is no operation Rite: use one of Read"),
    ],
)
def test_invalid_options_are_rejected(
    cluster: Cluster,
    lograft: Run,  # noqa: F811
    arguments: tuple[str, ...],
    message: str,
) -> None:
    to = ("--bootstrap-server", cluster.bootstrap_servers)
    done = lograft("acls", "add", "--principal", "User:alice", *arguments, *to)
    assert done.code == 1
    assert message in done.err
