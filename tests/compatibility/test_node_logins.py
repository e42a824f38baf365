"""Lograft and Apache Kafka nodes authenticate to each other with SASL."""

import time
from collections.abc import Callable

import pytest

from lograft.client import NewTopic
from lograft.client.blocking import Admin, Producer
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from tests.compatibility.servers import HOST, Kind, Server, free_port, kinds_under_test

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif("kafka" not in kinds_under_test(), reason="LOGRAFT_TEST_SERVERS=both"),
]

PASSWORD = "c4n4ry"
SCRAM = "SCRAM-SHA-256"
CONTROLLER_ID = 3
PLAIN_LOGIN = (
    f'{PLAIN_MODULE} required username="node" password="{PASSWORD}" user_node="{PASSWORD}";'
)
SCRAM_LOGIN = f'{SCRAM_MODULE} required username="node" password="{PASSWORD}";'
SECURED = {
    "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN_LOGIN,
    "listener.name.controller.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
    "listener.name.inside.plain.sasl.jaas.config": PLAIN_LOGIN,
    "listener.name.inside.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
}
#: A broker has to support all finalized features, so those of share and streams groups are off.
FEATURES = ("--feature", "share.version=0", "--feature", "streams.version=0")
ADD_USER = ("--add-scram", f"{SCRAM}=[name=node,password={PASSWORD}]")


def secure(server: Server, mechanism: str, role: str) -> None:
    """Clients use the listener PLAINTEXT, nodes the others."""
    inside = f"{HOST}:{free_port()}"
    listeners = f"PLAINTEXT://{server.bootstrap},INSIDE://{inside}"
    if role == "controller":
        listeners = f"CONTROLLER://{server.controller}"
    server.settings |= {
        **SECURED,
        "process.roles": role,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT"
        ",CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "offsets.topic.replication.factor": "2",
    } | ({"inter.broker.listener.name": "INSIDE"} if role == "broker" else {})
    server.voters = ""


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
@pytest.mark.parametrize("kind", ["kafka", "lograft"])
def test_brokers_of_both_under_a_controller(
    new_server: Callable[..., Server], kind: Kind, mechanism: str
) -> None:
    controller = new_server(kind)
    controller.node_id = CONTROLLER_ID
    secure(controller, mechanism, "controller")
    controller.voters = f"{CONTROLLER_ID}@{controller.controller}"
    controller.format_arguments = (*FEATURES, *ADD_USER)
    brokers = [new_server("lograft"), new_server("kafka")]
    for node_id, broker in enumerate(brokers, start=1):
        broker.node_id = node_id
        secure(broker, mechanism, "broker")
        broker.voters = controller.voters
    try:
        controller.launch()
        for broker in brokers:
            broker.launch()
        servers = ",".join(broker.bootstrap for broker in brokers)
        with Admin(bootstrap_servers=servers) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, controller, *brokers)
            admin.create_topics([NewTopic("orders", partitions=2, replicas=2)])
            with Producer(bootstrap_servers=servers) as producer:
                for partition in (0, 1):
                    assert producer.send("orders", b"tea", partition=partition).offset == 0

            def all_in_sync() -> bool:
                topic = admin.describe_topics(["orders"])["orders"]
                return all(len(partition.isr) == 2 for partition in topic.partitions)

            wait_for(all_in_sync, controller, *brokers)
    finally:
        for server in (*brokers, controller):
            server.kill()
    assert PASSWORD not in "".join(server.log_path.read_text() for server in (controller, *brokers))


def wait_for(is_met: Callable[[], bool], *servers: Server) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if is_met():
            return
        time.sleep(0.2)
    pytest.fail("\n".join(server.log_tail() for server in servers))
