"""`lograft quotas`, and the methods of `Admin` behind it."""

import json
from collections.abc import Iterator

import pytest

from lograft.client import BrokerError, QuotaEntity
from lograft.client.blocking import Admin
from lograft.model.errors import InvalidInput
from lograft.testing import Cluster
from tests.unit.cli.test_commands import Run, lograft  # noqa: F401


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_quotas_are_set_listed_and_removed(cluster: Cluster, lograft: Run) -> None:  # noqa: F811
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    empty = lograft("quotas", "list", *where)
    assert empty.out.startswith("No quotas;")
    values = ("producer_byte_rate=1048576", "request_percentage=12.5")
    done = lograft("quotas", "set", "--user", "alice", "--default-client-id", *values, *where)
    assert (done.code, done.out) == (
        0,
        "Set producer_byte_rate, request_percentage of user alice, default client-id.\n",
    )
    dry = lograft(
        "quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5", "--dry-run", *where
    )
    assert dry.out == "Dry run: connection_creation_rate of ip 10.0.0.1 would be set.\n"
    listed = lograft("quotas", "list", *where).out.splitlines()
    assert [line.split("  ")[0] for line in listed[1:]] == ["user alice, default client-id"] * 2
    assert json.loads(lograft("quotas", "list", "--json", *where).out) == [
        {"entity": "user alice, default client-id", "quota": name, "value": value}
        for name, value in (("producer_byte_rate", 1048576.0), ("request_percentage", 12.5))
    ]
    entity = ("--user", "alice", "--default-client-id")
    missing = lograft("quotas", "remove", "consumer_byte_rate", *entity, *where)
    assert missing.code == 1
    assert "has no consumer_byte_rate" in missing.err
    assert lograft("quotas", "remove", *entity, *where).code == 0
    assert lograft("quotas", "list", *where).out.startswith("No quotas;")


@pytest.mark.parametrize(
    "options",
    [
        ("producer_byte_rate=1",),
        ("--user", "a", "--default-user", "producer_byte_rate=1"),
        ("--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"),
        ("--user", "", "producer_byte_rate=1"),
        ("--user", "a", "producer_byte_rate=fast"),
        ("--user", "a"),
    ],
)
def test_wrong_options_are_rejected(
    cluster: Cluster,
    lograft: Run,  # noqa: F811
    options: tuple[str, ...],
) -> None:
    run = lograft("quotas", "set", *options, "--bootstrap-server", cluster.bootstrap_servers)
    assert run.code == 2


def test_an_admin_changes_quotas(cluster: Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        bob, everybody = QuotaEntity(user="bob"), QuotaEntity(user="")
        admin.alter_client_quotas(
            {bob: {"producer_byte_rate": 1}, everybody: {"producer_byte_rate": 2}}
        )
        assert admin.describe_client_quotas(everybody) == {everybody: {"producer_byte_rate": 2}}
        with pytest.raises(BrokerError, match="must be greater than 0"):
            admin.alter_client_quotas({bob: {"producer_byte_rate": 0}}, validate_only=True)
        with pytest.raises(InvalidInput, match="needs a user"):
            admin.alter_client_quotas({QuotaEntity(): {"producer_byte_rate": 1}})
        admin.alter_client_quotas({each: {"producer_byte_rate": None} for each in (bob, everybody)})
        assert admin.describe_client_quotas() == {}
