"""Every API with an authorizer that denies: Kafka's error codes, and no authorization requests
beyond the permissions that the API declares."""

from importlib import import_module
from typing import Any, NamedTuple, cast

import pytest

from lograft.api.authorization import ALL_OPERATIONS, DENIED_CODE
from lograft.api.router import served_apis
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID
from lograft.security.authorization import (
    CLUSTER_ACTION,
    CLUSTER_ALTER,
    CLUSTER_ALTER_CONFIGS,
    CLUSTER_CREATE,
    CLUSTER_DESCRIBE,
    CLUSTER_DESCRIBE_CONFIGS,
    CLUSTER_IDEMPOTENT_WRITE,
    CLUSTER_NAME,
    DELEGATION_TOKEN_DESCRIBE,
    GROUP_ALTER_CONFIGS,
    GROUP_DELETE,
    GROUP_DESCRIBE,
    GROUP_DESCRIBE_CONFIGS,
    GROUP_READ,
    TOPIC_ALTER,
    TOPIC_ALTER_CONFIGS,
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    TOPIC_DESCRIBE_CONFIGS,
    TOPIC_READ,
    TOPIC_WRITE,
    TRANSACTIONAL_ID_DESCRIBE,
    TRANSACTIONAL_ID_TWO_PHASE_COMMIT,
    TRANSACTIONAL_ID_WRITE,
    USER_CREATE_TOKENS,
    USER_DESCRIBE_TOKENS,
    Need,
    Permission,
    ResourceType,
)
from lograft.wire.apis import ApiSpec, request_class, response_class
from lograft.wire.message import Field, Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lograft.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from lograft.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lograft.wire.messages.fetch import ReplicaState
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lograft.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from lograft.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from lograft.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from lograft.wire.messages.vote import VoteRequest, VoteResponse
from tests.support.scenarios import scenario
from tests.unit.api import offsets_bench, transactions_bench
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
from tests.unit.broker.bench import Bench, batch_of, run

SPECS = {spec.name: spec for spec in (*served_apis("broker"), *served_apis("controller"))}
STRINGS = {"transactional_id": "x", "v3_and_below_transactional_id": "x", "group_id": "g"}
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
TRANSACTIONAL = batch_of(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)


class Case(NamedTuple):
    api: str
    #: All of these are denied, although one would be enough.
    denied: tuple[Permission, ...]
    #: Fields of the request and of everything inside it, by name.
    fields: dict[str, Any] = {}  # noqa: RUF012
    version: int | None = None
    #: The code of the last permission by default.
    code: ErrorCode | None = None

    def describe(self) -> str:
        operation, resource_type = self.denied[-1]
        return f"{self.api}-{operation.name}-{resource_type.name}"


def case(api: str, *denied: Permission, **fields: Any) -> Case:
    return Case(api, denied, fields)


CASES = [
    case("Produce", TOPIC_WRITE, records=batch_of(b"v"), acks=1),
    Case("Produce", (TOPIC_WRITE,), {"records": batch_of(b"v"), "acks": 1, "name": "t"}, 12),
    case("Produce", TRANSACTIONAL_ID_WRITE, records=TRANSACTIONAL, acks=1, transactional_id="x"),
    case("Fetch", TOPIC_READ),
    Case("Fetch", (TOPIC_READ,), {"replica_id": -1, "topic": "t"}, 12),
    case("Fetch", CLUSTER_ACTION, replica_state=ReplicaState(replica_id=2)),
    Case("Fetch", (CLUSTER_ACTION,), {"replica_id": 2}, 4, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    case("ListOffsets", TOPIC_DESCRIBE),
    case("Metadata", TOPIC_DESCRIBE, topic_id=ZERO_UUID, name="t"),
    case("Metadata", TOPIC_DESCRIBE, name=None),
    case("Metadata", TOPIC_DESCRIBE, topic_id=ZERO_UUID, name="new"),
    case(
        "Metadata",
        CLUSTER_CREATE,
        TOPIC_CREATE,
        topic_id=ZERO_UUID,
        name="new",
        allow_auto_topic_creation=True,
    ),
    case("OffsetCommit", GROUP_READ),
    case("OffsetCommit", TOPIC_READ),
    Case("OffsetCommit", (TOPIC_READ,), {"name": "unknown"}, 9),
    case("OffsetFetch", GROUP_DESCRIBE),
    Case("OffsetFetch", (GROUP_DESCRIBE,), {}, 7),
    case("FindCoordinator", GROUP_DESCRIBE),
    Case("FindCoordinator", (GROUP_DESCRIBE,), {}, 3),
    case("FindCoordinator", TRANSACTIONAL_ID_DESCRIBE, key_type=1),
    case("FindCoordinator", CLUSTER_ACTION, key_type=2),
    case("JoinGroup", GROUP_READ),
    case("Heartbeat", GROUP_READ),
    case("LeaveGroup", GROUP_READ),
    case("SyncGroup", GROUP_READ),
    case("DescribeGroups", GROUP_DESCRIBE),
    case("ListGroups", CLUSTER_ACTION, used_topics=["t"]),
    case("CreateTopics", CLUSTER_CREATE, TOPIC_CREATE, name="new", assignments=[], configs=[]),
    case("DeleteTopics", TOPIC_DELETE, topic_id=ZERO_UUID, name="t"),
    case("DeleteTopics", TOPIC_DELETE, name=None),
    Case("DeleteTopics", (TOPIC_DELETE,), {"topic_names": ["t"]}, 5),
    case("DeleteRecords", TOPIC_DELETE),
    case("InitProducerId", TRANSACTIONAL_ID_WRITE, transactional_id="x"),
    case("InitProducerId", TOPIC_WRITE, CLUSTER_IDEMPOTENT_WRITE, transactional_id=None),
    case("OffsetForLeaderEpoch", CLUSTER_ACTION, TOPIC_DESCRIBE),
    case("AddPartitionsToTxn", CLUSTER_ACTION),
    case("AddPartitionsToTxn", TRANSACTIONAL_ID_WRITE),
    Case("AddPartitionsToTxn", (TRANSACTIONAL_ID_WRITE,), {}, 3),
    Case("AddPartitionsToTxn", (TOPIC_WRITE,), {}, 3),
    case("AddOffsetsToTxn", TRANSACTIONAL_ID_WRITE),
    case("AddOffsetsToTxn", GROUP_READ),
    case("EndTxn", TRANSACTIONAL_ID_WRITE),
    case("WriteTxnMarkers", CLUSTER_ALTER, CLUSTER_ACTION),
    case("TxnOffsetCommit", TRANSACTIONAL_ID_WRITE),
    case("TxnOffsetCommit", GROUP_READ),
    case("TxnOffsetCommit", TOPIC_READ),
    case("DescribeAcls", CLUSTER_DESCRIBE),
    case("CreateAcls", CLUSTER_ALTER),
    case("DeleteAcls", CLUSTER_ALTER),
    case("DescribeConfigs", TOPIC_DESCRIBE_CONFIGS, resource_type=TOPIC),
    case("DescribeConfigs", CLUSTER_DESCRIBE_CONFIGS, resource_type=BROKER, resource_name="1"),
    case("DescribeConfigs", GROUP_DESCRIBE_CONFIGS, resource_type=GROUP),
    case("AlterConfigs", TOPIC_ALTER_CONFIGS, resource_type=TOPIC),
    case("AlterConfigs", CLUSTER_ALTER_CONFIGS, resource_type=BROKER, resource_name="", configs=[]),
    case("AlterConfigs", GROUP_ALTER_CONFIGS, resource_type=GROUP),
    case("IncrementalAlterConfigs", TOPIC_ALTER_CONFIGS, resource_type=TOPIC),
    case(
        "IncrementalAlterConfigs",
        CLUSTER_ALTER_CONFIGS,
        resource_type=LOGGER,
        resource_name="1",
        configs=[],
    ),
    case("IncrementalAlterConfigs", GROUP_ALTER_CONFIGS, resource_type=GROUP),
    case("IncrementalAlterConfigs", CLUSTER_ACTION, resource_type=TOPIC, claims=True),
    case("IncrementalAlterConfigs", CLUSTER_ALTER, resource_type=TOPIC, replication_factor=1),
    case("AlterReplicaLogDirs", CLUSTER_ALTER),
    case("DescribeLogDirs", CLUSTER_DESCRIBE),
    case("CreatePartitions", TOPIC_ALTER, count=2, assignments=None),
    case("DeleteGroups", GROUP_DELETE),
    case("ElectLeaders", CLUSTER_ALTER),
    case("AlterPartitionReassignments", CLUSTER_ALTER),
    case("ListPartitionReassignments", CLUSTER_DESCRIBE),
    case("OffsetDelete", GROUP_DELETE),
    case("DescribeClientQuotas", CLUSTER_DESCRIBE_CONFIGS),
    case("AlterClientQuotas", CLUSTER_ALTER_CONFIGS),
    case("DescribeUserScramCredentials", CLUSTER_DESCRIBE),
    case("AlterUserScramCredentials", CLUSTER_ALTER),
    case("Vote", CLUSTER_ACTION),
    case("BeginQuorumEpoch", CLUSTER_ACTION),
    case("EndQuorumEpoch", CLUSTER_ACTION),
    case("DescribeQuorum", CLUSTER_DESCRIBE),
    case("AlterPartition", CLUSTER_ACTION),
    case("UpdateFeatures", CLUSTER_ALTER),
    case("Envelope", CLUSTER_ACTION),
    case("FetchSnapshot", CLUSTER_ACTION),
    case("DescribeProducers", TOPIC_READ),
    case("BrokerRegistration", CLUSTER_ACTION),
    case("BrokerHeartbeat", CLUSTER_ACTION),
    case("UnregisterBroker", CLUSTER_ALTER),
    case("DescribeTransactions", TRANSACTIONAL_ID_DESCRIBE),
    case("AllocateProducerIds", CLUSTER_ACTION),
    case("ConsumerGroupHeartbeat", GROUP_READ),
    case("ConsumerGroupHeartbeat", TOPIC_DESCRIBE),
    case("ConsumerGroupDescribe", GROUP_DESCRIBE),
    case("ControllerRegistration", CLUSTER_ACTION),
    case("AssignReplicasToDirs", CLUSTER_ACTION),
    case("ListConfigResources", CLUSTER_DESCRIBE_CONFIGS),
    case("DescribeTopicPartitions", TOPIC_DESCRIBE),
    case("AddRaftVoter", CLUSTER_ALTER),
    case("RemoveRaftVoter", CLUSTER_ALTER),
    case("UpdateRaftVoter", CLUSTER_ACTION),
]

#: Items that are denied are missing in the response, or must exist to be described. Covered by
#: other tests.
FILTERS = {
    ("Metadata", CLUSTER_DESCRIBE),
    ("DescribeCluster", CLUSTER_DESCRIBE),
    ("ListGroups", CLUSTER_DESCRIBE),
    ("ListGroups", GROUP_DESCRIBE),
    ("ListTransactions", TRANSACTIONAL_ID_DESCRIBE),
    ("DescribeTransactions", TOPIC_DESCRIBE),
    ("ConsumerGroupDescribe", TOPIC_DESCRIBE),
    ("OffsetFetch", TOPIC_DESCRIBE),
    ("OffsetDelete", TOPIC_READ),
    ("CreateTopics", TOPIC_DESCRIBE_CONFIGS),
    ("DeleteTopics", TOPIC_DESCRIBE),
    # Only version 6 has it, which is not stable.
    ("InitProducerId", TRANSACTIONAL_ID_TWO_PHASE_COMMIT),
    # test_delegation_tokens.py
    ("CreateDelegationToken", USER_CREATE_TOKENS),
    ("DescribeDelegationToken", DELEGATION_TOKEN_DESCRIBE),
    ("DescribeDelegationToken", USER_DESCRIBE_TOKENS),
}


def role_of(spec: ApiSpec) -> str:
    return "broker" if "broker" in spec.listeners else "controller"


def filled(kind: type[Message], version: int, fields: dict[str, Any]) -> Any:
    """Returns a message with one element in every array, for topic t."""
    return kind(
        **{
            field.name: fields[field.name]
            if field.name in fields
            else value_of(field, version, fields)
            for field in kind.FIELDS
            if field.is_in(version) and (field.tag < 10_000 or field.name in fields)
        }
    )


def value_of(field: Field, version: int, fields: dict[str, Any]) -> Any:
    if field.kind == "array":
        element = field.element
        if isinstance(element, type):
            return [filled(element, version, fields)]
        return {"string": ["t"], "int32": [0]}.get(cast(str, element), [])
    if field.kind == "string":
        is_free = field.is_nullable_in(version) and field.name != "name"
        return None if is_free else STRINGS.get(field.name, "t")
    if field.kind == "uuid":
        return fields["topic_id"]
    return field.new_default()


def codes_in(message: Message) -> set[int]:
    found: set[int] = set()
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, Message):
            found |= codes_in(value)
        elif field.kind == "array" and isinstance(field.element, type):
            for element in value or ():
                found |= codes_in(element)
    return found


async def send_request(bench: Bench, case: Case) -> Any:
    spec = SPECS[case.api]
    version = spec.max_version if case.version is None else case.version
    fields = {"topic_id": bench.topic_id("t"), "timeout_ms": 5_000} | case.fields
    request = filled(request_class(spec.key), version, fields)
    return await bench.ask(request, version, response_class(spec.key), role=role_of(spec))


@pytest.mark.parametrize("case", CASES, ids=Case.describe)
@scenario(run)
async def test_requests_with_denied_and_allowed_permission(bench: Bench, /, case: Case) -> None:
    code = case.code or DENIED_CODE[case.denied[-1].resource_type]

    await bench.create_topic("t")
    before = bench.broker.image.offset
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied.update(case.denied)
    codes = codes_in(await send_request(bench, case))
    assert code in codes
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes
    assert bench.broker.image.offset == before
    assert bench.broker.partitions.get("t", 0) is not None
    assert bench.partition("t").high_watermark == 0
    authorizer.denied.clear()
    for allowed in case.denied[:-1] or ((),):
        # An alternative permission is sufficient.
        authorizer.denied.update({case.denied[-1]} if allowed else ())
        assert code not in codes_in(await send_request(bench, case))
    declared = import_module(f"lograft.api.{SPECS[case.api].module}").API.needs.permissions
    if case.api != "DescribeTopicPartitions":  # It always returns all authorized operations.
        assert authorizer.permissions_requested <= declared


def test_every_declared_permission_has_a_case() -> None:
    played = {(each.api, permission) for each in CASES for permission in each.denied}
    declared = {
        (spec.name, permission)
        for spec in SPECS.values()
        for permission in import_module(f"lograft.api.{spec.module}").API.needs.permissions
    }
    assert declared - played == FILTERS


@scenario(run)
async def test_requests_without_needs_are_not_authorized(bench: Bench, /) -> None:
    await bench.create_topic("t")
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    for spec in SPECS.values():
        needs = import_module(f"lograft.api.{spec.module}").API.needs
        if not needs.permissions:
            fields = {"client_software_name": "a", "client_software_version": "1"}
            await send_request(bench, Case(spec.name, (), fields))
    assert authorizer.requested == []


@scenario(offsets_bench.play)
async def test_hidden_groups_are_not_listed(bench: Bench, /) -> None:
    await offsets_bench.commit(bench, 9, "t", {0: 1})
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)

    async def listed() -> list[str]:
        response = await bench.ask(ListGroupsRequest(), 5, ListGroupsResponse)
        assert response.error_code == 0
        return [group.group_id for group in response.groups]

    authorizer.denied.add(CLUSTER_DESCRIBE)
    assert await listed() == ["g"]
    authorizer.denied.add(GROUP_DESCRIBE)
    assert await listed() == []
    # A principal that may describe the cluster may describe all groups.
    authorizer.denied.remove(CLUSTER_DESCRIBE)
    assert await listed() == ["g"]


@pytest.mark.parametrize("version", [7, 9, 10])
@scenario(offsets_bench.play)
async def test_offsets_of_hidden_topics_are_not_returned(bench: Bench, /, version: int) -> None:
    """Requested by name, each partition has an error. In a request for all topics they are
    missing."""
    await offsets_bench.commit(bench, 9, "t", {0: 1})
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    named = filled(OffsetFetchRequest, version, {"topic_id": bench.topic_id("t")})
    assert codes_in(await bench.ask(named, version, OffsetFetchResponse)) == {0}
    assert await offsets_bench.fetch_all(bench, version) != {}
    authorizer.hidden.add("t")
    named = filled(OffsetFetchRequest, version, {"topic_id": bench.topic_id("t")})
    codes = codes_in(await bench.ask(named, version, OffsetFetchResponse))
    assert codes == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert await offsets_bench.fetch_all(bench, version) == {}


@scenario(offsets_bench.play)
async def test_offsets_of_denied_topics_are_not_deleted(bench: Bench, /) -> None:
    await offsets_bench.commit(bench, 9, "t", {0: 1})
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied.add(TOPIC_READ)
    request = filled(OffsetDeleteRequest, 0, {})
    codes = codes_in(await bench.ask(request, 0, OffsetDeleteResponse))
    assert codes == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    authorizer.denied.clear()
    assert await offsets_bench.fetch_all(bench, 9) != {}


@scenario(transactions_bench.play)
async def test_hidden_transactions_are_not_listed(bench: Bench, /) -> None:
    producer = await transactions_bench.begin(bench)
    assert await transactions_bench.produce(bench, producer, b"v") == 0
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)

    async def listed() -> list[str]:
        response = await bench.ask(ListTransactionsRequest(), 2, ListTransactionsResponse)
        return [state.transactional_id for state in response.transaction_states]

    async def topics() -> list[str]:
        request = DescribeTransactionsRequest(transactional_ids=["x"])
        response = await bench.ask(request, 0, DescribeTransactionsResponse)
        (state,) = response.transaction_states
        return [topic.topic for topic in state.topics]

    assert (await listed(), await topics()) == (["x"], ["t"])
    authorizer.hidden.add("t")
    assert (await listed(), await topics()) == (["x"], [])
    authorizer.hidden.add("x")
    assert await listed() == []


@scenario(run)
async def test_authorized_operations_are_returned_on_request(bench: Bench, /) -> None:
    await bench.create_topic("t")
    await bench.create_topic("u")
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)

    async def described() -> tuple[int, int, dict[str | None, int]]:
        cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
        metadata = MetadataRequest(
            topics=None,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        response = await bench.ask(metadata, 10, MetadataResponse)
        result = await bench.ask(cluster, 2, DescribeClusterResponse)
        return (
            result.cluster_authorized_operations,
            response.cluster_authorized_operations,
            {topic.name: topic.topic_authorized_operations for topic in response.topics},
        )

    whole, topic = ALL_OPERATIONS[ResourceType.CLUSTER], ALL_OPERATIONS[ResourceType.TOPIC]
    assert await described() == (whole, whole, {"t": topic, "u": topic})
    authorizer.denied |= {CLUSTER_ALTER, TOPIC_WRITE}
    authorizer.hidden.add("u")
    whole, topic = whole - (1 << 7), topic - (1 << 4)
    assert await described() == (whole, whole, {"t": topic})
    authorizer.denied.add(CLUSTER_DESCRIBE)
    assert await described() == (0, 0, {"t": topic})


@scenario(run)
async def test_settings_of_a_created_topic_need_permission(bench: Bench, /) -> None:
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied |= {TOPIC_DESCRIBE_CONFIGS, CLUSTER_CREATE}
    authorizer.hidden.add("not-mine")
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("mine", "not-mine")
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=5_000)
    response = await bench.ask(request, 7, CreateTopicsResponse)
    created, rejected = response.topics
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (created.name, created.error_code) == ("mine", 0)
    assert (created.topic_config_error_code, created.configs) == (denied, [])
    assert (created.num_partitions, created.replication_factor) == (-1, -1)
    assert (rejected.name, rejected.error_code) == ("not-mine", denied)
    assert list(bench.broker.image.topic_ids) == ["mine"]


@pytest.mark.parametrize("may_describe", [False, True])
@scenario(run)
async def test_topic_id_does_not_reveal_the_name(bench: Bench, /, may_describe: bool) -> None:
    await bench.create_topic("t")
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied |= {TOPIC_DELETE} | (set() if may_describe else {TOPIC_DESCRIBE})
    state = DeleteTopicState(name=None, topic_id=bench.topic_id("t"))
    request = DeleteTopicsRequest(topics=[state], timeout_ms=5_000)
    response = await bench.ask(request, 6, DeleteTopicsResponse)
    (result,) = response.responses
    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert result.name == ("t" if may_describe else None)
    assert may_describe or "'t'" not in (result.error_message or "")


@scenario(run, unstable_api_versions_enable="true")
async def test_two_phase_commit_needs_a_separate_permission(bench: Bench, /) -> None:
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied.add(TRANSACTIONAL_ID_TWO_PHASE_COMMIT)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for is_two_phase in (False, True):
        request = InitProducerIdRequest(transactional_id="x", enable2_pc=is_two_phase)
        response = await bench.ask(request, 6, InitProducerIdResponse)
        assert (response.error_code == denied) == is_two_phase


@scenario(run)
async def test_votes_between_brokers_need_cluster_action(bench: Bench, /) -> None:
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (await bench.ask(VoteRequest(), 2, VoteResponse)).error_code != denied
    authorizer.denied.add(CLUSTER_ACTION)
    assert (await bench.ask(VoteRequest(), 2, VoteResponse)).error_code == denied


@scenario(run)
async def test_first_missing_permission_fails_the_request(bench: Bench, /) -> None:
    await bench.create_topic("t")
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    authorizer.denied |= {TRANSACTIONAL_ID_WRITE, GROUP_READ, TOPIC_READ}
    codes = codes_in(await send_request(bench, case("TxnOffsetCommit")))
    assert codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    ((principal, host, need),) = authorizer.requested
    assert (principal, need) == ("User:ANONYMOUS", Need(*TRANSACTIONAL_ID_WRITE, "x"))
    assert host
    authorizer.denied.remove(TRANSACTIONAL_ID_WRITE)
    codes = codes_in(await send_request(bench, case("TxnOffsetCommit")))
    assert codes == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert authorizer.requested[-1][-1] == Need(*GROUP_READ, "g")


@scenario(run)
async def test_cluster_resource_has_kafkas_name(bench: Bench, /) -> None:
    await bench.create_topic("t")
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    await send_request(bench, case("DescribeAcls"))
    ((_, _, need),) = authorizer.requested
    assert need == Need(*CLUSTER_DESCRIBE, CLUSTER_NAME)
