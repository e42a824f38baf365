"""Requests about security on nodes without it: clients get an answer at once, the same on Lograft
and on Apache Kafka. Both store SCRAM users and quotas."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import admin as confluent_admin

from lograft.client import Admin, AuthenticationFailed
from lograft.model.errors import ErrorCode
from lograft.wire.apis import API_VERSIONS, request_class
from lograft.wire.message import Message
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest
from lograft.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from lograft.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from lograft.wire.messages.describe_acls import DescribeAclsRequest
from lograft.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from lograft.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from lograft.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from lograft.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from lograft.wire.messages.produce import ProduceRequest
from lograft.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from lograft.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.compatibility import librdkafka
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Server, compares_two

pytestmark = [pytest.mark.clients]
#: Its type stubs do not list all exported names.
confluent: Any = confluent_admin
ANY = 1
LITERAL = 3
SECONDS_MAX = 10.0
SASL_CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


def errors_in(value: Any) -> list[int]:
    """All error codes of a response, in order."""
    if isinstance(value, list):
        return [code for each in value for code in errors_in(each)]
    if not isinstance(value, Message):
        return []
    found = [code for field in value.FIELDS for code in errors_in(getattr(value, field.name))]
    own = getattr(value, "error_code", None)
    return found if own is None else [own, *found]


REJECTED: list[tuple[Message, list[ErrorCode]]] = [
    (
        DescribeAclsRequest(
            resource_type_filter=ANY, operation=ANY, permission_type=ANY, pattern_type_filter=ANY
        ),
        [ErrorCode.SECURITY_DISABLED],
    ),
    (
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name="topic",
                    resource_pattern_type=LITERAL,
                    principal="User:alice",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
            * 2
        ),
        [ErrorCode.SECURITY_DISABLED] * 2,
    ),
    (
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=ANY,
                    operation=ANY,
                    permission_type=ANY,
                    pattern_type_filter=ANY,
                )
            ]
            * 2
        ),
        [ErrorCode.SECURITY_DISABLED] * 2,
    ),
    (CreateDelegationTokenRequest(), [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]),
    (RenewDelegationTokenRequest(hmac=b"x"), [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]),
    (ExpireDelegationTokenRequest(hmac=b"x"), [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]),
    (
        DescribeDelegationTokenRequest(owners=None),
        [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED],
    ),
    (SaslHandshakeRequest(mechanism="PLAIN"), [ErrorCode.ILLEGAL_SASL_STATE]),
    (SaslAuthenticateRequest(auth_bytes=b"x"), [ErrorCode.ILLEGAL_SASL_STATE]),
]


@pytest.mark.parametrize(("request_", "codes"), REJECTED, ids=lambda each: type(each).__name__)
def test_requests_about_security_are_rejected(
    server: Server, request_: Message, codes: list[ErrorCode]
) -> None:
    spec = API_VERSIONS[request_.KEY]
    for version in range(spec.min_version, spec.max_version + 1):
        with connect(server) as connection:
            assert errors_in(ask(connection, request_, version)) == codes


def test_librdkafka_sees_that_security_is_disabled(server: Server) -> None:
    admin = librdkafka.admin_of(server.bootstrap)
    pattern = confluent.ResourceType.TOPIC, "topic", confluent.ResourcePatternType.LITERAL
    rule = "User:alice", "*", confluent.AclOperation.READ, confluent.AclPermissionType.ALLOW
    # It treats an error in the response to DescribeAcls as no ACLs.
    futures = [
        *admin.create_acls([confluent.AclBinding(*pattern, *rule)]).values(),
        *admin.delete_acls([confluent.AclBindingFilter(*pattern, *rule)]).values(),
    ]
    for future in futures:
        with pytest.raises(KafkaException) as found:
            future.result(librdkafka.ANSWER_SECONDS_MAX)
        assert found.value.args[0].code() == KafkaError.SECURITY_DISABLED


def test_scram_users_are_stored_for_listeners_to_come(server: Server) -> None:
    admin = librdkafka.admin_of(server.bootstrap)
    scram = confluent.ScramMechanism.SCRAM_SHA_256
    upsertion = confluent.UserScramCredentialUpsertion(
        "stored", confluent.ScramCredentialInfo(scram, 4096), b"secret", b"salt"
    )
    changed = admin.alter_user_scram_credentials([upsertion])["stored"]
    assert changed.result(SECONDS_MAX) is None
    described: Any = admin.describe_user_scram_credentials(["stored"])
    infos = described["stored"].result(SECONDS_MAX).scram_credential_infos
    assert [(info.mechanism, info.iterations) for info in infos] == [(scram, 4096)]
    deletion = confluent.UserScramCredentialDeletion("stored", scram)
    changed = admin.alter_user_scram_credentials([deletion])["stored"]
    assert changed.result(SECONDS_MAX) is None


def test_librdkafka_with_sasl_fails_at_once(server: Server) -> None:
    errors: list[KafkaError] = []
    client = Producer(
        {"bootstrap.servers": server.bootstrap, "error_cb": errors.append, **SASL_CLIENT}
    )
    deadline = time.monotonic() + SECONDS_MAX
    while not errors and time.monotonic() < deadline:
        client.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "SASL" in errors[0].str()


@pytest.mark.conformance
def test_our_client_with_sasl_fails_at_once(server: Server) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            async with Admin({"bootstrap.servers": server.bootstrap, **SASL_CLIENT}) as admin:
                await admin.describe_cluster()

    with pytest.raises(AuthenticationFailed):
        asyncio.run(scenario())


@pytest.mark.interop
def test_java_with_sasl_fails_at_once(
    server: Server, java_tools: JavaTools, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="alice" password="secret";\n'
    )
    arguments = ("--bootstrap-server", server.bootstrap, "--command-config", str(config))
    run = java_tools.run("TopicCommand", "--list", *arguments)
    assert run.code == 1
    assert "Unexpected handshake request with client mechanism PLAIN" in run.text


@pytest.mark.interop
def test_java_tools_show_why(server: Server, java_tools: JavaTools) -> None:
    where = ("--bootstrap-server", server.bootstrap)
    listed = java_tools.run("AclCommand", *where, "--list")
    assert (listed.code, "SecurityDisabledException" in listed.text) == (1, True)
    described = java_tools.run("ConfigCommand", *where, "--describe", "--entity-type", "users")
    assert (described.code, described.text.strip()) == (0, "")


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_no_api_of_kafka_closes_the_connection(
    new_server: Callable[..., Server], role: str
) -> None:
    """A single connection: no API of Kafka 4.3.1 may close it."""
    with new_server("lograft").started() as server:
        port = server.port if role == "broker" else server.controller_port
        with connect(server, port=port) as connection:
            for spec in API_VERSIONS.values():
                if role not in spec.listeners:
                    continue
                for version in range(spec.min_version, spec.max_version + 1):
                    request = ProduceRequest(acks=1) if spec.key == 0 else request_class(spec.key)()
                    ask(connection, request, version)


USERS = ("alice", "bob")
QUOTA_ENTITIES: list[tuple[str, dict[str, str | None]]] = [
    ("producer_byte_rate", {"user": "alice"}),
    ("producer_byte_rate", {"user": None}),
    ("consumer_byte_rate", {"user": "alice", "client-id": "c"}),
    ("consumer_byte_rate", {"user": None, "client-id": None}),
    ("request_percentage", {"client-id": "c"}),
    ("connection_creation_rate", {"ip": "10.0.0.1"}),
]
QUOTAS = AlterClientQuotasRequest(
    entries=[
        AlterClientQuotasRequestEntryData(
            entity=[
                AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.items()
            ],
            ops=[OpData(key=key, value=1000.0 + number)],
        )
        for number, (key, entity) in enumerate(QUOTA_ENTITIES)
    ]
)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
FILTERS: list[list[tuple[str, int, str | None]]] = [
    [],
    [("user", EXACT, "alice")],
    [("user", DEFAULT, None)],
    [("user", SPECIFIED, None)],
    [("client-id", EXACT, "c")],
    [("user", SPECIFIED, None), ("client-id", SPECIFIED, None)],
    [("ip", SPECIFIED, None)],
    [("ip", SPECIFIED, None), ("user", SPECIFIED, None)],
    [("user", EXACT, None)],
    [("user", 7, None)],
    [("nothing", SPECIFIED, None)],
    [("user", SPECIFIED, None), ("user", SPECIFIED, None)],
]


def described(server: Server) -> dict[str, Any]:
    """Quotas and SCRAM users as described by a node."""
    found: dict[str, Any] = {}
    with connect(server) as connection:
        for components in FILTERS:
            for strict in (False, True):
                request = DescribeClientQuotasRequest(
                    components=[
                        ComponentData(entity_type=kind, match_type=how, match=match)
                        for kind, how, match in components
                    ],
                    strict=strict,
                )
                response = ask(connection, request, 1)
                assert isinstance(response, DescribeClientQuotasResponse)
                entries = response.entries
                found[f"{components} {strict}"] = (
                    response.error_code,
                    entries
                    and sorted(
                        repr(
                            (
                                sorted(
                                    (each.entity_type, each.entity_name) for each in entry.entity
                                ),
                                [(value.key, value.value) for value in entry.values],
                            )
                        )
                        for entry in entries
                    ),
                )
        for users in (None, [], ["alice"], ["bob", "nobody"], ["alice", "alice"]):
            chosen = None if users is None else [UserName(name=user) for user in users]
            answer = ask(connection, DescribeUserScramCredentialsRequest(users=chosen), 0)
            assert isinstance(answer, DescribeUserScramCredentialsResponse)
            found[f"users {users}"] = (
                answer.error_code,
                {
                    result.user: (
                        result.error_code,
                        sorted(
                            (info.mechanism, info.iterations) for info in result.credential_infos
                        ),
                    )
                    for result in answer.results
                },
            )
    return found


@compares_two()
def test_lograft_describes_what_kafka_has_stored(new_server: Callable[..., Server]) -> None:
    kafka = new_server("kafka")
    with kafka.started(), connect(kafka) as connection:
        stored = ask(connection, QUOTAS, 1)
        assert errors_in(stored) == [0] * len(QUOTAS.entries)
        for mechanism in (1, 2):
            request = AlterUserScramCredentialsRequest(
                upsertions=[
                    ScramCredentialUpsertion(
                        name=user,
                        mechanism=mechanism,
                        iterations=4096 + mechanism,
                        salt=b"salt",
                        salted_password=b"salted",
                    )
                    for user in USERS[: 3 - mechanism]
                ]
            )
            response = ask(connection, request, 0)
            assert isinstance(response, AlterUserScramCredentialsResponse)
            assert {result.error_code for result in response.results} == {0}
        deadline = time.monotonic() + SECONDS_MAX
        while len(theirs := described(kafka)) and time.monotonic() < deadline:
            if len(theirs["users None"][1]) == len(USERS):
                break
    ours = new_server("lograft").using_data_of(kafka)
    with ours.started():
        assert described(ours) == theirs
