"""Envelopes on a controller's listener: the inner request is handled as if the client had sent
it."""

import pytest

from lograft.api.forwarding import FORWARDED, INCREMENTAL_ALTER_CONFIGS, read_response
from lograft.api.router import Router
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ACTION, CLUSTER_CREATE, TOPIC_CREATE
from lograft.security.principals import encode_principal
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.describe_quorum import DescribeQuorumRequest
from lograft.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.metadata import MetadataRequest
from tests.support.scenarios import scenario
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
from tests.unit.broker.bench import Bench, run

CREATE_TOPICS = 19


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5_000)


def envelope(message: Message, version: int, principal: str = "User:ANONYMOUS") -> EnvelopeRequest:
    frame = frame_request(message, version, correlation_id=4711, client_id="me")
    return EnvelopeRequest(
        request_data=frame[4:],
        request_principal=encode_principal(principal),
        client_host_address=bytes([10, 0, 0, 7]),
    )


async def open_envelope(bench: Bench, request: EnvelopeRequest) -> EnvelopeResponse:
    return await bench.ask(request, 0, EnvelopeResponse, role="controller")


@pytest.mark.parametrize("version", range(2, 8))
@scenario(run)
async def test_envelope_returns_the_inner_response(bench: Bench, /, version: int) -> None:
    for code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        reply = await open_envelope(bench, envelope(creation("t"), version))
        assert reply.error_code == 0
        assert reply.response_data is not None
        correlation_id, _ = read_response_header(reply.response_data, version >= 5)
        assert correlation_id == 4711
        response = read_response(reply.response_data, CREATE_TOPICS, version)
        assert isinstance(response, CreateTopicsResponse)
        assert [topic.error_code for topic in response.topics] == [code]


@scenario(run)
async def test_controller_trusts_the_check_of_the_forwarding_broker(bench: Bench, /) -> None:
    """The broker's file may have overrides, which the controller does not know."""
    setting = AlterableConfig(name="max.connections.per.ip", config_operation=0, value="0")
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[setting])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    reply = await open_envelope(bench, envelope(request, 1))
    assert reply.response_data is not None
    response = read_response(reply.response_data, INCREMENTAL_ALTER_CONFIGS, 1)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in response.responses] == [ErrorCode.NONE]


@scenario(run)
async def test_inactive_controller_rejects_the_whole_envelope(bench: Bench, /) -> None:
    bench.controller.down = True
    reply = await open_envelope(bench, envelope(creation("t"), 7))
    assert reply.error_code == ErrorCode.NOT_CONTROLLER
    assert reply.response_data is None


@scenario(run)
async def test_invalid_contents_are_rejected(bench: Bench, /) -> None:
    good = envelope(creation("t"), 7)
    nested = envelope(good, 0)
    assert (await open_envelope(bench, nested)).error_code == ErrorCode.INVALID_REQUEST
    other = envelope(MetadataRequest(), 9)
    assert (await open_envelope(bench, other)).error_code == ErrorCode.INVALID_REQUEST
    for data in (b"", good.request_data[:20]):
        cut = envelope(creation("t"), 7)
        cut.request_data = data
        assert (await open_envelope(bench, cut)).error_code == ErrorCode.INVALID_REQUEST
    newer = envelope(creation("t"), 7)
    newer.request_data = b"\0\x13\0\x63" + newer.request_data[4:]
    assert (await open_envelope(bench, newer)).error_code == ErrorCode.UNSUPPORTED_VERSION
    no_principal = envelope(creation("t"), 7)
    no_principal.request_principal = None
    code = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    assert (await open_envelope(bench, no_principal)).error_code == code
    no_address = envelope(creation("t"), 7)
    no_address.client_host_address = b"123"
    assert (await open_envelope(bench, no_address)).error_code == ErrorCode.INVALID_REQUEST
    assert bench.broker.image.topics == {}


@scenario(run)
async def test_forwarded_apis_have_an_error_response(bench: Bench, /) -> None:
    """A forwarded request that no controller handled must not close its connection."""
    router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT", link=bench.broker.link)
    for spec in router.served:
        if spec.key in FORWARDED:
            route = router.route(spec.key)
            assert route.is_forwarded
            assert route.error_response is not None, spec.name
    on_controller = Router(bench.broker.shared, None, listener="CONTROLLER", role="controller")
    assert not on_controller.route(DescribeQuorumRequest.KEY).is_forwarded


@scenario(run)
async def test_broker_needs_cluster_action_and_client_its_own_permissions(bench: Bench, /) -> None:
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    broker, client = "User:ANONYMOUS", "User:alice"

    async def create(name: str) -> tuple[int, int | None]:
        """Returns the error codes of the envelope and of the topic inside."""
        reply = await open_envelope(bench, envelope(creation(name), 7, client))
        if reply.response_data is None:
            return reply.error_code, None
        response = read_response(reply.response_data, CREATE_TOPICS, 7)
        assert isinstance(response, CreateTopicsResponse)
        return reply.error_code, response.topics[0].error_code

    authorizer.granted = {broker: set(), client: {CLUSTER_CREATE, CLUSTER_ACTION}}
    assert await create("t") == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    authorizer.granted = {broker: {CLUSTER_ACTION, CLUSTER_CREATE}, client: set()}
    assert await create("t") == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert bench.broker.image.topics == {}
    # The client's own address.
    assert {host for who, host, _ in authorizer.requested if who == client} == {"10.0.0.7"}
    authorizer.granted = {broker: {CLUSTER_ACTION}, client: {TOPIC_CREATE}}
    assert await create("t") == (0, 0)


@scenario(run)
async def test_forwarded_request_is_authorized_once_by_the_controller(bench: Bench, /) -> None:
    """This node is broker and controller: its own Envelope needs no permission, the client's
    request does."""
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied.add(CLUSTER_ACTION)

    async def create() -> int:
        response = await bench.ask(creation("t"), 7, CreateTopicsResponse)
        return response.topics[0].error_code

    authorizer.hidden.add("t")
    authorizer.denied.add(CLUSTER_CREATE)
    assert await create() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    asked = [(need.operation, need.resource_type) for _, _, need in authorizer.requested]
    assert asked == [CLUSTER_CREATE, TOPIC_CREATE]
    authorizer.hidden.clear()
    assert await create() == 0
