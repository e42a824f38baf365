"""Nodes authenticate to each other, in simulated clusters."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.broker.links.logins import LOG_INTERVAL_MS
from lograft.client import Admin, ConfigChange, NewTopic, Producer, broker_resource
from lograft.model.settings.broker import broker_config
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.security.scram_credentials import (
    ITERATIONS_MIN,
    ScramMechanism,
    credential_of,
    salt_password,
)
from lograft.testing import VirtualCluster
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse as UPSERTED,
)

PASSWORD = "c4n4ry"
SCRAM = "SCRAM-SHA-256"
SALT = b"salt of the nodes"


def salted(password: str) -> bytes:
    return salt_password(ScramMechanism.SCRAM_SHA_256, password, SALT, ITERATIONS_MIN)


NODE = credential_of(
    "node",
    ScramMechanism.SCRAM_SHA_256,
    salted_password=salted(PASSWORD),
    salt=SALT,
    iterations=ITERATIONS_MIN,
)


def upsertion(password: str) -> AlterUserScramCredentialsRequest:
    change = ScramCredentialUpsertion(
        name="node",
        mechanism=NODE.mechanism,
        iterations=ITERATIONS_MIN,
        salt=SALT,
        salted_password=salted(password),
    )
    return AlterUserScramCredentialsRequest(upsertions=[change])


def jaas(module: str, options: str) -> str:
    return f'{module} required username="node" password="{PASSWORD}" {options};'


PLAIN = jaas(PLAIN_MODULE, f'user_node="{PASSWORD}" user_alice="{PASSWORD}"')
#: The listener with the name PLAINTEXT is that of clients and brokers in all simulated clusters.
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": PLAIN,
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": jaas(SCRAM_MODULE, ""),
}
Scenario = Callable[[VirtualCluster], Awaitable[None]]


def play(scenario: Scenario, properties: dict[str, str] | None = None, **options: Any) -> None:
    async def main(cluster: VirtualCluster) -> None:
        await scenario(cluster)

    VirtualCluster(seed=9, properties=SECURED | (properties or {}), **options).play(main)


def settings_of(cluster: VirtualCluster) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(map(str, cluster.bootstrap())),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }


async def produce(cluster: VirtualCluster, topic: str, **settings: str) -> None:
    async with Producer(
        {**settings_of(cluster), **settings}, runtime=cluster.client_runtime()
    ) as producer:
        await producer.send(topic, b"one")


async def create_topic(cluster: VirtualCluster, topic: str, replicas: int) -> None:
    async with Admin(settings_of(cluster), runtime=cluster.client_runtime()) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1, replicas=replicas)])


def reconfigure(cluster: VirtualCluster, node_id: int, changes: dict[str, str]) -> None:
    """For the next start of the node."""
    host = cluster.hosts[node_id]
    host.config = broker_config({**host.config.raw, **changes})


def in_sync(cluster: VirtualCluster, topic: str) -> set[int]:
    found = cluster.image.topic(topic)
    return set() if found is None else set(found.partitions[0].isr)


def logins(text: str, outcome: str, *, event: str = "login", listener: str = "") -> list[str]:
    return [
        line
        for line in text.splitlines()
        if f"event={event} outcome={outcome}" in line
        and "user=alice" not in line
        and "principal=User:alice" not in line
        and f"listener={listener}" in line
    ]


THREE = ("controller", "controller", "controller")
COMBINED = "broker,controller"
SCRAM_TO_CONTROLLERS = {
    "sasl.mechanism.controller.protocol": SCRAM,
    "listener.name.controller.scram-sha-256.sasl.jaas.config": jaas(SCRAM_MODULE, ""),
}


@pytest.mark.parametrize(
    ("roles", "between_brokers", "to_controllers"),
    [
        ((COMBINED,) * 3, "PLAIN", "PLAIN"),
        ((COMBINED,) * 3, SCRAM, "PLAIN"),
        (("controller", "broker", "broker", "broker"), SCRAM, SCRAM),
        ((*THREE, "broker", "broker", "broker"), SCRAM, SCRAM),
    ],
)
def test_nodes_log_in_at_each_other(
    roles: tuple[str, ...],
    between_brokers: str,
    to_controllers: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lograft.security")

    async def scenario(cluster: VirtualCluster) -> None:
        await create_topic(cluster, "t", 3)
        await produce(cluster, "t")
        cluster.kill(cluster.leader_of("t", 0))
        await produce(cluster, "t")

    cluster = VirtualCluster(
        len(roles),
        seed=9,
        roles=roles,
        users=[NODE],
        properties=SECURED | {"sasl.mechanism.inter.broker.protocol": between_brokers},
    )
    for node_id, role in enumerate(roles, start=1):
        if to_controllers == SCRAM and (role == "broker" or roles.count("controller") == 1):
            reconfigure(cluster, node_id, SCRAM_TO_CONTROLLERS)
    cluster.play(scenario)
    brokers = logins(caplog.text, "success", listener="PLAINTEXT")
    assert brokers
    assert {f"mechanism={between_brokers} " in line for line in brokers} == {True}
    used = {
        mechanism
        for mechanism in (SCRAM, "PLAIN")
        for line in logins(caplog.text, "success", listener="CONTROLLER")
        if f"mechanism={mechanism} " in line
    }
    # Controllers authenticate to each other with PLAIN.
    assert used == {to_controllers} | ({"PLAIN"} if roles.count("controller") != 1 else set())
    assert all("principal=User:node" in line for line in logins(caplog.text, "success"))
    # The users exist as soon as the first leader has written the metadata.
    early = logins(caplog.text, "failure")
    assert all("unknown user" in line and "listener=CONTROLLER" in line for line in early)


def test_sessions_are_renewed_without_losing_a_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(cluster: VirtualCluster) -> None:
        await create_topic(cluster, "t", 3)
        await asyncio.sleep(10)
        caplog.clear()
        controller, changes = cluster.controller_id, cluster.image.offset
        await asyncio.sleep(60)
        assert in_sync(cluster, "t") == {1, 2, 3}
        assert cluster.controller_id == controller
        # Heartbeats are not in the metadata, but changes of an ISR would be.
        assert not [p for p in cluster.probes if p[1] == "isr" and p[2].get("offset", 0) > changes]
        await produce(cluster, "t")

    play(scenario, {"connections.max.reauth.ms": "5000"}, users=[NODE])
    renewed = logins(caplog.text, "success", event="reauthentication")
    assert len(renewed) > 50
    assert logins(caplog.text, "failure", event="reauthentication") == []
    # The connections of before last.
    assert len(logins(caplog.text, "success")) < len(renewed) / 10


def test_a_wrong_password_is_logged_once_in_a_while_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    wrong = {
        name: text.replace(f'password="{PASSWORD}"', 'password="c4n4ry-wrong"', 1)
        for name, text in SECURED.items()
        if name.endswith("plain.sasl.jaas.config")
    }

    async def scenario(cluster: VirtualCluster) -> None:
        await create_topic(cluster, "t", 3)
        cluster.kill(3)
        right = cluster.hosts[3].config.raw
        reconfigure(cluster, 3, wrong)
        caplog.clear()
        cluster.boot(3)
        seconds = 90
        await asyncio.sleep(seconds)
        warnings = [
            record.getMessage()
            for record in caplog.records
            if record.name.endswith("links.logins") and record.levelno == logging.WARNING
        ]
        # About each of the two other controllers.
        assert 2 <= len(warnings) <= 2 * (1 + seconds * 1000 // LOG_INTERVAL_MS)
        assert "PLAIN login at listener CONTROLLER failed" in warnings[0]
        attempts = caplog.text.count("event=login outcome=failure") + sum(
            int(number) for number in re.findall(r"suppressed=(\d+)", caplog.text)
        )
        # Two addresses, an attempt per second after the first few.
        assert attempts <= 2 * (seconds + 10)
        await produce(cluster, "t")
        cluster.kill(3)
        reconfigure(cluster, 3, dict(right))
        await cluster.start(3)
        await cluster.wait_for(lambda: in_sync(cluster, "t") == {1, 2, 3})

    play(scenario, users=[NODE])
    assert PASSWORD not in caplog.text


def test_passwords_are_rotated_without_restarts(caplog: pytest.LogCaptureFixture) -> None:
    """First the user gets a new password, then the nodes learn it."""
    caplog.set_level(logging.INFO)
    name = "listener.name.plaintext.scram-sha-256.sasl.jaas.config"
    changed = f'{SCRAM_MODULE} required username="node" password="changed";'

    async def scenario(cluster: VirtualCluster) -> None:
        await create_topic(cluster, "t", 3)
        await produce(cluster, "t")
        async with Admin(settings_of(cluster), runtime=cluster.client_runtime()) as admin:
            await admin._driver._core.network.request(upsertion("changed"), UPSERTED)
            await produce(cluster, "t")
            for node_id in (1, 2, 3):
                resource = broker_resource(node_id)
                await admin.alter_configs({resource: [ConfigChange(name, changed)]})
        caplog.clear()
        # Both others, which were not restarted, open new connections to the leader, or it to them.
        leader = cluster.leader_of("t", 0)
        cluster.kill(leader)
        await cluster.wait_for(lambda: len(in_sync(cluster, "t")) == 2)
        await cluster.start(leader)
        await cluster.wait_for(lambda: in_sync(cluster, "t") == {1, 2, 3})
        await produce(cluster, "t")
        assert logins(caplog.text, "success", listener="PLAINTEXT")
        assert logins(caplog.text, "failure") == []

    play(scenario, {"sasl.mechanism.inter.broker.protocol": SCRAM}, users=[NODE])


def test_a_user_who_was_removed_cannot_reconnect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(cluster: VirtualCluster) -> None:
        await create_topic(cluster, "t", 3)
        async with Admin(settings_of(cluster), runtime=cluster.client_runtime()) as admin:
            deletion = ScramCredentialDeletion(name="node", mechanism=NODE.mechanism)
            request = AlterUserScramCredentialsRequest(deletions=[deletion])
            await admin._driver._core.network.request(request, UPSERTED)
        # The sessions end, and the followers do not get this record.
        await asyncio.sleep(10)
        await produce(cluster, "t", acks="1", enable_idempotence="false")
        await cluster.wait_for(lambda: len(in_sync(cluster, "t")) == 1)
        failures = logins(caplog.text, "failure", listener="PLAINTEXT")
        assert failures
        assert all("unknown user" in line for line in failures)

    play(
        scenario,
        {"sasl.mechanism.inter.broker.protocol": SCRAM, "connections.max.reauth.ms": "3000"},
        users=[NODE],
    )
