"""Clients log in and renew their sessions, in virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client import Admin, AuthenticationFailed, Consumer, Producer
from lograft.client.client_settings import ClientSettings
from lograft.client.core import ClientCore
from lograft.client.network_metrics import (
    AUTHENTICATION_FAILURES,
    AUTHENTICATIONS,
    REAUTHENTICATION_FAILURES,
    REAUTHENTICATIONS,
)
from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.security.scram_credentials import ScramMechanism, salt_password
from lograft.testing import VirtualCluster
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lograft.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

PASSWORD = "c4n4ry"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENER = "n1:9095"
PROPERTIES = {
    "listeners": f"PLAINTEXT://n1:9092,SASL://{LISTENER},CONTROLLER://n1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ",SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN_MODULE} required"
    f' user_alice="{PASSWORD}";',
}
SALT = b"0123456789"
Scenario = Callable[[VirtualCluster], Awaitable[None]]


def upsertion(mechanism: ScramMechanism) -> AlterUserScramCredentialsRequest:
    salted = salt_password(mechanism, PASSWORD, SALT, 4096)
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name="alice",
                mechanism=mechanism,
                iterations=4096,
                salt=SALT,
                salted_password=salted,
            )
        ]
    )


async def change_users(cluster: VirtualCluster, request: AlterUserScramCredentialsRequest) -> None:
    core = await connect(cluster, bootstrap_servers="n1:9092")
    response = await core.network.request(request, AlterUserScramCredentialsResponse)
    assert [result.error_code for result in response.results] == [0]
    await core.close()


async def connect(cluster: VirtualCluster, **settings: Any) -> ClientCore[ClientSettings]:
    return ClientCore(
        ClientSettings.read(settings), creates_topics=True, runtime=cluster.client_runtime()
    )


def play(scenario: Scenario, **properties: str) -> None:
    async def main(cluster: VirtualCluster) -> None:
        for mechanism in ScramMechanism:
            await change_users(cluster, upsertion(mechanism))
        await scenario(cluster)

    dotted = {name.replace("_", "."): value for name, value in properties.items()}
    VirtualCluster(nodes=1, seed=4, properties={**PROPERTIES, **dotted}).play(main)


def settings_of(mechanism: str = "PLAIN", password: str = PASSWORD, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": LISTENER,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": password,
        **more,
    }


def readings(core: ClientCore[ClientSettings], *metrics: Any) -> list[float]:
    found = {reading.metric: reading.value for reading in core.network.metrics.collect_readings()}
    return [float(str(found[metric])) for metric in metrics]


async def describe(core: ClientCore[ClientSettings]) -> None:
    await core.network.request(DescribeClusterRequest(), DescribeClusterResponse)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_logs_in(mechanism: str) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        runtime = cluster.client_runtime()
        async with Producer(settings_of(mechanism), runtime=runtime) as producer:
            assert (await producer.send("t", b"one")).offset == 0

    play(scenario)


def test_credentials_may_be_in_a_jaas_entry() -> None:
    text = f'{SCRAM_MODULE} required username="alice" password="{PASSWORD}";'

    async def scenario(cluster: VirtualCluster) -> None:
        settings = settings_of("SCRAM-SHA-512") | {"sasl_jaas_config": text}
        del settings["sasl_username"], settings["sasl_password"]
        async with Admin(settings, runtime=cluster.client_runtime()) as admin:
            await admin.list_topics()

    play(scenario)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_reported_once(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario(cluster: VirtualCluster) -> None:
        settings = settings_of(mechanism, "wr0ng", max_block_ms=600_000)
        loop = asyncio.get_running_loop()
        async with Producer(settings, runtime=cluster.client_runtime()) as producer:
            started = loop.time()
            with pytest.raises(AuthenticationFailed) as raised:
                await producer.send("t", b"one")
            assert loop.time() - started < 5
        text = str(raised.value)
        assert text.startswith(f"{LISTENER}: authentication failed: {mechanism}: Authentication")
        assert text.endswith("check the user name and the password")
        assert raised.value.mechanism == mechanism
        assert raised.value.stage == "authentication"

    play(scenario)
    assert "wr0ng" not in caplog.text
    assert caplog.text.count("event=login outcome=failure") == 1


def test_a_mechanism_that_is_not_enabled_is_reported_with_those_that_are() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        async with Admin(settings_of(), runtime=cluster.client_runtime()) as admin:
            with pytest.raises(AuthenticationFailed, match="enabled mechanisms: SCRAM-SHA-256;"):
                await admin.list_topics()

    play(scenario, sasl_enabled_mechanisms="SCRAM-SHA-256")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_renewed_on_the_same_connection(mechanism: str) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        core = await connect(cluster, **settings_of(mechanism))
        await core.metadata.wait_topic("t", deadline_ms=core.now_ms() + 10_000)
        connection = await core.network.connect(1)
        for _ in range(300):
            await asyncio.sleep(0.2)
            await core.network.request(DescribeClusterRequest(), DescribeClusterResponse, node=1)
        assert await core.network.connect(1) is connection
        assert not connection.is_closed
        renewed, failed, opened = readings(
            core, REAUTHENTICATIONS, REAUTHENTICATION_FAILURES, AUTHENTICATIONS
        )
        # A minute of sessions that last ten seconds.
        assert 6 <= renewed <= 8
        assert failed == 0
        assert opened == 2  # The first one was to the bootstrap address.
        await core.close()

    play(scenario, connections_max_reauth_ms="10000")


def test_an_idle_session_that_has_ended_is_renewed() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        core = await connect(cluster, **settings_of())
        await describe(core)
        await asyncio.sleep(60)
        await describe(core)
        assert readings(core, REAUTHENTICATIONS, AUTHENTICATIONS) == [1, 1]
        await core.close()

    play(scenario, connections_max_reauth_ms="10000")


def test_short_sessions_use_new_connections() -> None:
    """The broker ignores a renewal within a second of another one."""

    async def scenario(cluster: VirtualCluster) -> None:
        core = await connect(cluster, **settings_of())
        for _ in range(50):
            await describe(core)
            await asyncio.sleep(0.1)
        renewed, opened, failed = readings(
            core, REAUTHENTICATIONS, AUTHENTICATIONS, AUTHENTICATION_FAILURES
        )
        assert renewed == failed == 0
        assert opened >= 5
        await core.close()

    play(scenario, connections_max_reauth_ms="800")


def test_streams_continue_while_sessions_are_renewed() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        runtime = cluster.client_runtime()
        values = [b"%d" % i for i in range(400)]
        received: list[object] = []
        async with (
            Producer(settings_of("SCRAM-SHA-256"), runtime=runtime) as producer,
            Consumer(
                settings_of("SCRAM-SHA-512", group_id="g", auto_offset_reset="earliest"),
                runtime=runtime,
            ) as consumer,
        ):
            consumer.subscribe("t")

            async def consume() -> None:
                while len(received) < len(values):
                    for records in (await consumer.poll(1_000)).values():
                        received.extend(record.value for record in records)

            consuming = asyncio.ensure_future(consume())
            for value in values:
                await producer.enqueue("t", value)
                await asyncio.sleep(0.1)
            await producer.flush()
            await consuming
        assert received == values

    play(scenario, connections_max_reauth_ms="3000")


def test_a_user_who_was_removed_loses_the_session() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        core = await connect(cluster, **settings_of("SCRAM-SHA-256"))
        await describe(core)
        deletion = ScramCredentialDeletion(name="alice", mechanism=ScramMechanism.SCRAM_SHA_256)
        await change_users(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))
        await describe(core)
        await asyncio.sleep(10)
        for _ in range(2):
            with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256"):
                await describe(core)
        assert readings(core, REAUTHENTICATION_FAILURES, AUTHENTICATION_FAILURES) == [1, 1]
        await core.close()

    play(scenario, connections_max_reauth_ms="10000")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sasl_mechanism": "DIGEST-MD5"}, "sasl.mechanism is 'DIGEST-MD5'"),
        # Which of the two is missing depends on the environment.
        ({"sasl_mechanism": "GSSAPI"}, r"lograft\[kerberos\]|sasl\.kerberos\.service\.name"),
        ({"sasl_username": None}, "requires sasl.username and sasl.password"),
        ({"sasl_password": ""}, "must not be empty"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "oauth_token"),
        (
            {
                "sasl_username": None,
                "sasl_jaas_config": f'{SCRAM_MODULE} required password="{PASSWORD}";',
            },
            "names the login module",
        ),
    ],
)
def test_settings_without_usable_credentials_are_rejected(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidConfig, match=problem) as raised:
        ClientSettings.read(settings_of() | changes)
    assert PASSWORD not in str(raised.value)


def test_settings_do_not_show_the_password() -> None:
    settings = ClientSettings.read(settings_of())
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in repr(settings.sasl_credentials())
