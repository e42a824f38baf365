"""A forwarded request gets the same response from this node's own controller, which handles the
decoded request, as from a controller that gets it in an Envelope.
"""

from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from lograft.api.context import Context
from lograft.api.forwarding import FORWARDABLE, address_bytes, forward_frame
from lograft.api.router import Router
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.security.authorization import (
    TOPIC_ALTER,
    TOPIC_CREATE,
    TOPIC_DESCRIBE,
    Permission,
)
from lograft.security.principals import encode_principal
from lograft.wire.apis import (
    API_VERSIONS,
    request_class,
    response_class,
    response_header_version,
)
from lograft.wire.codec import read
from lograft.wire.errors import UnwritableMessage
from lograft.wire.headers import frame_request, frame_response, read_request_header
from lograft.wire.message import Message
from lograft.wire.messages import alter_configs, incremental_alter_configs
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from lograft.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lograft.wire.messages.describe_quorum import DescribeQuorumRequest
from lograft.wire.messages.elect_leaders import ElectLeadersRequest
from lograft.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from lograft.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from lograft.wire.messages.unregister_broker import UnregisterBrokerRequest
from lograft.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.properties.random_messages import RandomMessages
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
from tests.unit.broker.bench import Bench
from tests.unit.broker.bench import run as run_broker

CLIENT = "User:alice"
CLIENT_ID = "a-client"
#: An Envelope keeps neither zone nor port.
CLIENT_ADDRESS = Address("fe80::1%eth0", 4711)
ABOUT_THE_CLIENT = (
    "api_key",
    "api_version",
    "authorizer",
    "client_id",
    "is_forwarded",
    "listener",
    "peer",
    "principal",
    "role",
    "served",
    "when_closed",
)
AUTHORIZERS: dict[str, Callable[[], StandInAuthorizer | None]] = {
    "no authorizer": lambda: None,
    "all allowed": StandInAuthorizer,
    "nothing granted": lambda: authorizer_granting(),
    "topics granted": lambda: authorizer_granting(TOPIC_CREATE, TOPIC_ALTER, TOPIC_DESCRIBE),
}


def authorizer_granting(*permissions: Permission) -> StandInAuthorizer:
    authorizer = StandInAuthorizer()
    authorizer.granted[CLIENT] = set(permissions)
    authorizer.hidden.add("hidden")
    return authorizer


def topics_of(*names: str) -> list[CreatableTopic]:
    return [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]


def informative_requests() -> list[Message]:
    """Returns requests that change something, are partly rejected, or are sent twice."""
    setting = incremental_alter_configs.AlterableConfig(
        name="retention.ms", config_operation=0, value="1234"
    )
    overridden = CreatableTopic(
        name="overridden",
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value="99")],
    )
    return [
        CreateTopicsRequest(topics=topics_of("a", "hidden", "b", "c"), timeout_ms=9_000),
        CreateTopicsRequest(topics=[*topics_of("a", "b", "b"), overridden], timeout_ms=9_000),
        CreateTopicsRequest(topics=topics_of("d"), timeout_ms=0),
        CreateTopicsRequest(topics=topics_of("e"), timeout_ms=9_000, validate_only=True),
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=4) for name in ("a", "hidden", "no")],
            timeout_ms=9_000,
        ),
        ElectLeadersRequest(topic_partitions=None, timeout_ms=9_000),
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="a",
                    partitions=[ReassignablePartition(partition_index=0, replicas=[1])],
                )
            ]
        ),
        ListPartitionReassignmentsRequest(topics=None),
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=2, resource_name=name, configs=[setting]
                )
                for name in ("a", "hidden", "no")
            ]
        ),
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name=name,
                    configs=[alter_configs.AlterableConfig(name="retention.ms", value="77")],
                )
                for name in ("b", "hidden", "no")
            ]
        ),
        DescribeQuorumRequest(),
        UnregisterBrokerRequest(broker_id=99),
        UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="no.such", max_version_level=1)]
        ),
        DeleteTopicsRequest(topic_names=["b", "hidden", "no"], timeout_ms=9_000),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=9_000),
    ]


def forwarded_frames(key: int) -> Iterator[tuple[int, bytes]]:
    """Yields versions and frames, without length, of requests of one API: an empty one, those of
    `informative_requests`, and random ones."""
    spec, kind = API_VERSIONS[key], request_class(key)
    for version in range(spec.min_version, spec.max_version + 1):
        messages = [kind(), *(each for each in informative_requests() if key == each.KEY)]
        for seed, fullness in (("sparse", 0.2), ("full", 0.9)):
            build = RandomMessages(f"{key} {version} {seed}", fullness=fullness).build
            messages.append(build(kind, version))
        for message in messages:
            try:
                frame = frame_request(message, version, correlation_id=7, client_id=CLIENT_ID)
            except UnwritableMessage:
                continue  # a field that this version does not have
            yield version, frame[4:]


async def send_to_own_controller(bench: Bench, key: int, version: int, frame: bytes) -> bytes:
    """Returns the response as this node sends it to its client."""
    router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT", link=bench.broker.link)
    header = read_request_header(frame)
    request, _ = read(request_class(key), version, frame, header.body_position)
    context = router.context(
        key, version, client_id=CLIENT_ID, peer=CLIENT_ADDRESS, principal=CLIENT
    )
    response = await forward_frame(context, request, frame)
    assert isinstance(response, Message)
    # The same request object may be sent to another controller afterwards.
    again = frame_request(request, version, correlation_id=7, client_id=CLIENT_ID)[4:]
    assert again == frame
    try:
        parts = frame_response(
            response,
            version,
            correlation_id=header.correlation_id,
            header_version=response_header_version(key, version),
        )
    except UnwritableMessage:
        return CLOSED
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))[4:]


async def send_in_envelope(bench: Bench, key: int, version: int, frame: bytes) -> bytes:
    envelope = EnvelopeRequest(
        request_data=frame,
        request_principal=encode_principal(CLIENT),
        client_host_address=address_bytes(CLIENT_ADDRESS),
    )
    reply = await bench.ask(envelope, 0, EnvelopeResponse, role="controller")
    if reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return CLOSED
    assert reply.error_code == 0
    assert reply.response_data is not None
    return reply.response_data


#: ElectLeaders 0 without partitions has no error code in the response: the connection is closed.
CLOSED = b""
Path = Callable[[Bench, int, int, bytes], Awaitable[bytes]]


def responses_of(path: Path, key: int, authorizer: StandInAuthorizer | None) -> list[Any]:
    """Uses a new cluster, in which the ids of new topics are the same each time."""
    responses: list[Any] = []

    async def scenario(bench: Bench) -> None:
        bench.authorize_with(authorizer)
        for name in ("a", "b", "hidden"):
            if key != CreateTopicsRequest.KEY:
                await bench.create_topic(name)
        for version, frame in forwarded_frames(key):
            if authorizer is not None:
                authorizer.requested.clear()
            responses.append((version, await path(bench, key, version, frame)))
            if authorizer is not None:
                responses.append([each for each in authorizer.requested if each[0] == CLIENT])
        responses.append(bench.controller.log)

    run_broker(scenario)
    return responses


@pytest.mark.parametrize("who", AUTHORIZERS)
@pytest.mark.parametrize("key", sorted(FORWARDABLE))
def test_own_controller_responds_as_to_an_envelope(key: int, who: str) -> None:
    """It also makes the same authorization requests, writes the same records and does not modify
    the request."""
    here = responses_of(send_to_own_controller, key, AUTHORIZERS[who]())
    in_envelope = responses_of(send_in_envelope, key, AUTHORIZERS[who]())
    assert here == in_envelope
    closed = [each for each in here if isinstance(each, tuple) and each[1] == CLOSED]
    assert all(key == ElectLeadersRequest.KEY and version == 0 for version, _ in closed)
    assert len(here) > 3


@pytest.mark.parametrize("key", sorted(FORWARDABLE))
def test_handler_sees_the_same_client_on_both_paths(
    key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    response: Callable[[], Message] = response_class(key)

    def note(context: Context, request: Message) -> Message:
        seen.append({name: getattr(context, name) for name in ABOUT_THE_CLIENT})
        return response()

    async def scenario(bench: Bench) -> None:
        version, frame = next(forwarded_frames(key))
        await send_to_own_controller(bench, key, version, frame)
        await send_in_envelope(bench, key, version, frame)

    monkeypatch.setattr(import_module(f"lograft.api.{API_VERSIONS[key].module}"), "handle", note)
    run_broker(scenario)
    here, in_envelope = seen
    assert here == in_envelope
    assert here["principal"] == CLIENT
    assert here["client_id"] == CLIENT_ID
    assert (here["listener"], here["role"]) == ("CONTROLLER", "controller")
    assert here["peer"] == Address("fe80::1", 0)
    assert here["is_forwarded"]
