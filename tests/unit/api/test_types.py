"""The declarations of the APIs, compared with Kafka's documentation."""

from importlib import import_module

import pytest

from lograft.api import partition_votes, unsupported_apis
from lograft.api.router import served_apis
from lograft.api.types import NOTHING, Api, Needs, each_item, group_of, whole_request
from lograft.security.authorization import (
    CLUSTER_ACTION,
    CLUSTER_ALTER,
    CLUSTER_NAME,
    GROUP_READ,
    TOPIC_READ,
    Operation,
    Permission,
    ResourceType,
)
from lograft.wire.apis import ApiSpec
from lograft.wire.messages.heartbeat import HeartbeatRequest

SERVED = sorted({*served_apis("broker"), *served_apis("controller")})

#: The table "Operations and Resources on Protocols" of Kafka 4.3's security documentation: for
#: each API the operations and the type of resource, as far as this release serves the API.
KAFKAS_TABLE = """
Produce                         Write TransactionalId, IdempotentWrite Cluster, Write Topic
Fetch                           ClusterAction Cluster, Read Topic
ListOffsets                     Describe Topic
Metadata                        Describe Topic, Create Cluster, Create Topic
OffsetCommit                    Read Group, Read Topic
OffsetFetch                     Describe Group, Describe Topic
FindCoordinator                 Describe Group, Describe TransactionalId
JoinGroup                       Read Group
Heartbeat                       Read Group
LeaveGroup                      Read Group
SyncGroup                       Read Group
DescribeGroups                  Describe Group
ListGroups                      Describe Cluster, Describe Group
SaslHandshake
ApiVersions
CreateTopics                    Create Cluster, Create Topic
DeleteTopics                    Delete Topic
DeleteRecords                   Delete Topic
InitProducerId                  Write TransactionalId, IdempotentWrite Cluster
OffsetForLeaderEpoch            ClusterAction Cluster, Describe Topic
AddPartitionsToTxn              Write TransactionalId, Write Topic
AddOffsetsToTxn                 Write TransactionalId, Read Group
EndTxn                          Write TransactionalId
WriteTxnMarkers                 Alter Cluster, ClusterAction Cluster
TxnOffsetCommit                 Write TransactionalId, Read Group, Read Topic
DescribeAcls                    Describe Cluster
CreateAcls                      Alter Cluster
DeleteAcls                      Alter Cluster
DescribeConfigs                 DescribeConfigs Cluster, DescribeConfigs Topic
AlterConfigs                    AlterConfigs Cluster, AlterConfigs Topic
AlterReplicaLogDirs             Alter Cluster
DescribeLogDirs                 Describe Cluster
SaslAuthenticate
CreatePartitions                Alter Topic
CreateDelegationToken           CreateTokens User
RenewDelegationToken
ExpireDelegationToken
DescribeDelegationToken         Describe DelegationToken, DescribeTokens User
DeleteGroups                    Delete Group
ElectLeaders                    ClusterAction Cluster
IncrementalAlterConfigs         AlterConfigs Cluster, AlterConfigs Topic
AlterPartitionReassignments     Alter Cluster
ListPartitionReassignments      Describe Cluster
OffsetDelete                    Delete Group, Read Topic
DescribeClientQuotas            DescribeConfigs Cluster
AlterClientQuotas               AlterConfigs Cluster
DescribeUserScramCredentials    Describe Cluster
AlterUserScramCredentials       Alter Cluster
Vote                            ClusterAction Cluster
BeginQuorumEpoch                ClusterAction Cluster
EndQuorumEpoch                  ClusterAction Cluster
DescribeQuorum                  Describe Cluster
AlterPartition                  ClusterAction Cluster
UpdateFeatures                  Alter Cluster
Envelope                        ClusterAction Cluster
FetchSnapshot                   ClusterAction Cluster
DescribeCluster                 Describe Cluster
DescribeProducers               Read Topic
BrokerRegistration              ClusterAction Cluster
BrokerHeartbeat                 ClusterAction Cluster
UnregisterBroker                Alter Cluster
DescribeTransactions            Describe TransactionalId
ListTransactions                Describe TransactionalId
AllocateProducerIds             ClusterAction Cluster
ConsumerGroupHeartbeat          Read Group
ConsumerGroupDescribe           Read Group
ControllerRegistration          ClusterAction Cluster
GetTelemetrySubscriptions
PushTelemetry
AssignReplicasToDirs            ClusterAction Cluster
ListConfigResources             DescribeConfigs Cluster
DescribeTopicPartitions         Describe Topic
"""

#: Differences between Kafka's table and its request handlers (KafkaApis, ControllerApis): + for a
#: permission that the handlers check, - for one that they do not. The last two lines are Lograft's
#: own requests between nodes.
KAFKAS_HANDLERS = """
Produce                         - IdempotentWrite Cluster
Metadata                        + Describe Cluster
FindCoordinator                 + ClusterAction Cluster
CreateTopics                    + DescribeConfigs Topic
DeleteTopics                    + Describe Topic
InitProducerId                  + Write Topic, + TwoPhaseCommit TransactionalId
AddPartitionsToTxn              + ClusterAction Cluster
DescribeConfigs                 + DescribeConfigs Group
AlterConfigs                    + AlterConfigs Group
ElectLeaders                    - ClusterAction Cluster, + Alter Cluster
DescribeTransactions            + Describe Topic
ConsumerGroupHeartbeat          + Describe Topic
ConsumerGroupDescribe           - Read Group, + Describe Group, + Describe Topic
AddRaftVoter                    + Alter Cluster
RemoveRaftVoter                 + Alter Cluster
UpdateRaftVoter                 + ClusterAction Cluster
IncrementalAlterConfigs         + AlterConfigs Group, + ClusterAction Cluster, + Alter Cluster
ListGroups                      + ClusterAction Cluster
"""


def rows(table: str) -> dict[str, list[str]]:
    found = {}
    for line in table.strip().splitlines():
        name, _, rest = line.partition(" ")
        found[name] = [each.strip() for each in rest.split(",") if each.strip()]
    return found


def permission(words: str) -> Permission:
    operation, resource_type = ("".join(_snake(word)) for word in words.split())
    return Permission(Operation[operation], ResourceType[resource_type])


def _snake(word: str) -> list[str]:
    return [f"_{c}" if c.isupper() and i else c.upper() for i, c in enumerate(word)]


def expected(name: str) -> set[Permission]:
    found = {permission(each) for each in rows(KAFKAS_TABLE).get(name, [])}
    for change in rows(KAFKAS_HANDLERS).get(name, []):
        sign, _, words = change.partition(" ")
        if sign == "+":
            assert permission(words) not in found, f"the table of {name} has {words}"
            found.add(permission(words))
        else:
            found.remove(permission(words))
    return found


@pytest.mark.parametrize("spec", SERVED, ids=lambda spec: spec.name)
def test_every_api_needs_kafkas_permissions(spec: ApiSpec) -> None:
    api = import_module(f"lograft.api.{spec.module}").API
    assert isinstance(api, Api)
    assert isinstance(api.needs, Needs), f"{spec.name} declares no needs; NOTHING is one"
    assert api.needs.permissions == expected(spec.name)


def test_the_tables_are_complete() -> None:
    names = {spec.name for spec in SERVED}
    assert rows(KAFKAS_TABLE).keys() | rows(KAFKAS_HANDLERS).keys() == names
    assert whole_request(CLUSTER_ACTION) == partition_votes.NEEDS
    assert unsupported_apis.NEEDS == NOTHING


def test_an_api_cannot_be_declared_without_needs() -> None:
    with pytest.raises(TypeError, match="needs"):
        Api(key=1, versions=range(1))  # type: ignore[call-arg]


def test_needs_add_up() -> None:
    needs = whole_request(GROUP_READ, names=group_of) + each_item(TOPIC_READ)
    needs += whole_request(CLUSTER_ALTER, CLUSTER_ACTION, when=lambda request: False)
    assert needs.permissions == {GROUP_READ, TOPIC_READ, CLUSTER_ALTER, CLUSTER_ACTION}
    of_group, of_cluster = needs.request
    request = HeartbeatRequest(group_id="g")
    assert (of_group.any_of, list(of_group.names(request))) == ((GROUP_READ,), ["g"])
    assert of_group.when(request)
    assert (list(of_cluster.names(request)), of_cluster.when(request)) == ([CLUSTER_NAME], False)
    assert NOTHING.permissions == frozenset()
