"""Clusters in which clients and nodes log in."""

import pytest

from lograft.client import AuthenticationFailed, ScramUpsertion
from lograft.client.blocking import Admin, Consumer, Producer
from lograft.testing import Cluster
from lograft.testing.security import ClusterSecurity


@pytest.mark.parametrize("security", ["scram", "plain"])
def test_clients_and_nodes_log_in(security: str) -> None:
    with Cluster(nodes=3, security=security) as cluster:
        cluster.create_topic("t", replication_factor=3)
        with Producer(cluster.client_settings("alice")) as producer:
            assert producer.send("t", b"one").offset == 0
        cluster.kill(cluster.leader_of("t", 0))
        with (
            Producer(cluster.client_settings("bob")) as producer,
            Consumer(
                cluster.client_settings() | {"group.id": "g", "auto.offset.reset": "earliest"}
            ) as consumer,
        ):
            assert producer.send("t", b"two").offset == 1
            consumer.subscribe("t")
            assert [next(consumer).value for _ in range(2)] == [b"one", b"two"]


def test_a_wrong_password_is_rejected_and_users_can_be_added() -> None:
    with Cluster(security="scram", users=["carol"]) as cluster:
        settings = cluster.client_settings("carol")
        with (
            pytest.raises(AuthenticationFailed),
            Admin(settings | {"sasl.password": "wrong"}) as admin,
        ):
            admin.connect()
        with Admin(cluster.client_settings()) as admin:
            admin.alter_user_scram_credentials([ScramUpsertion("dave", "secret")])
        with Admin(settings | {"sasl.username": "dave", "sasl.password": "secret"}) as admin:
            admin.connect()


def test_settings_without_security_and_of_unknown_users() -> None:
    assert Cluster().client_settings("alice").keys() == {"bootstrap.servers"}
    with pytest.raises(ValueError, match="no user 'eve', only admin, alice, bob"):
        Cluster(security="scram").client_settings("eve")
    with pytest.raises(ValueError, match="security is 'tls'"):
        ClusterSecurity("tls")
    for name in ("node", 'a" b'):
        with pytest.raises(ValueError, match="must be identifiers"):
            ClusterSecurity("plain", [name])
