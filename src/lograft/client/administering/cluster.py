"""Requests about the cluster: brokers, features, and the quorum of its controllers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from lograft.client.administering.request_driver import CONTROLLER_ENDPOINTS, RequestDriver
from lograft.client.errors import raise_for
from lograft.model.seams import Address
from lograft.model.types import METADATA_TOPIC, ZERO_UUID
from lograft.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lograft.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    ReplicaState,
)
from lograft.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from lograft.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

BROKER_ENDPOINTS: Final = 1


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker and its advertised address.

    first: BrokerDescription = (await admin.describe_cluster()).brokers[0]
    print(first.id, first.address, first.rack)
    """

    id: int
    address: Address
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    #: If the request was sent to a broker: the id of any broker, since all of them forward to the
    #: active controller.
    controller: int
    brokers: tuple[BrokerDescription, ...]
    #: Descriptions of metadata that the cluster stores but does not enforce (ACLs, quotas, …). Only
    #: Lograft reports them.
    unenforced_state: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """A range of feature levels.

    levels: FeatureLevels = (await admin.describe_features()).supported["metadata.version"]
    assert levels.lowest <= levels.highest
    """

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Features:
    """The finalized features of the cluster, and those that the responding node supports."""

    finalized: Mapping[str, FeatureLevels]
    finalized_epoch: int
    supported: Mapping[str, FeatureLevels]


class UpgradeKind(IntEnum):
    """The values are those of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """The replication state of one controller.

    voter: QuorumReplica = (await admin.describe_quorum()).voters[0]
    print(voter.node, voter.end_offset)
    """

    node: int
    directory: UUID
    end_offset: int
    #: By the leader's wall clock; -1: unknown.
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    #: By voter id and listener name.
    addresses: Mapping[int, Mapping[str, Address]]

    def age_ms(self, timestamp_ms: int) -> int | None:
        """Returns the age of a replica's last_fetch_ms or last_caught_up_ms at the time of the
        response, by the leader's clock; None if the replica never fetched or caught up.

            quorum = await admin.describe_quorum()
            print([quorum.age_ms(voter.last_fetch_ms) for voter in quorum.voters])
        """
        if timestamp_ms < 0:
            return None
        # The leader's own timestamps are the time of its response, so none is later.
        now_ms = max(replica.last_fetch_ms for replica in (*self.voters, *self.observers))
        return max(0, now_ms - timestamp_ms)


async def describe_cluster(driver: RequestDriver, *, fenced: bool = False) -> ClusterDescription:
    uses_controllers = driver.uses_controllers
    response = await driver.result_of(
        DescribeClusterRequest(
            include_fenced_brokers=fenced,
            endpoint_type=CONTROLLER_ENDPOINTS if uses_controllers else BROKER_ENDPOINTS,
        ),
        DescribeClusterResponse,
        lambda response: raise_for(response.error_code, "the cluster", response.error_message),
        at_least=2 if fenced else 1 if uses_controllers else 0,
    )
    brokers = sorted(response.brokers, key=lambda broker: broker.broker_id)
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(
            BrokerDescription(
                broker.broker_id, Address(broker.host, broker.port), broker.rack, broker.is_fenced
            )
            for broker in brokers
        ),
        tuple(response.unenforced_state),
    )


async def describe_features(driver: RequestDriver) -> Features:
    response = await driver.result_of(
        ApiVersionsRequest(client_software_name="lograft", client_software_version="1"),
        ApiVersionsResponse,
        lambda response: raise_for(response.error_code, "features"),
        at_least=3,
    )
    return Features(
        {
            feature.name: FeatureLevels(feature.min_version_level, feature.max_version_level)
            for feature in response.finalized_features
        },
        response.finalized_features_epoch,
        {
            feature.name: FeatureLevels(feature.min_version, feature.max_version)
            for feature in response.supported_features
        },
    )


async def update_features(
    driver: RequestDriver,
    levels: Mapping[str, int],
    *,
    kind: UpgradeKind = UpgradeKind.UPGRADE,
    validate_only: bool = False,
) -> None:
    await driver.result_of(
        UpdateFeaturesRequest(
            timeout_ms=driver.request_timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        ),
        UpdateFeaturesResponse,
        _check_features,
        lookup=driver.find_controller,
        at_least=1,
    )


async def unregister_broker(driver: RequestDriver, broker: int) -> None:
    await driver.result_of(
        UnregisterBrokerRequest(broker_id=broker),
        UnregisterBrokerResponse,
        lambda response: raise_for(response.error_code, f"broker {broker}", response.error_message),
        lookup=driver.find_controller,
    )


async def describe_quorum(driver: RequestDriver) -> QuorumDescription:
    response = await driver.result_of(
        DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
                )
            ]
        ),
        DescribeQuorumResponse,
        _check_quorum,
        lookup=driver.find_controller,
    )
    partition = response.topics[0].partitions[0]
    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(map(_quorum_replica_of, partition.current_voters)),
        tuple(map(_quorum_replica_of, partition.observers)),
        {
            node.node_id: {
                listener.name: Address(listener.host, listener.port) for listener in node.listeners
            }
            for node in response.nodes
        },
    )


async def add_voter(
    driver: RequestDriver, node: int, directory: UUID, listeners: Mapping[str, Address]
) -> None:
    await driver.result_of(
        AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=driver.request_timeout_ms,
            voter_id=node,
            voter_directory_id=directory,
            listeners=[
                Listener(name=name, host=address.host, port=address.port)
                for name, address in listeners.items()
            ],
        ),
        AddRaftVoterResponse,
        lambda response: raise_for(response.error_code, f"voter {node}", response.error_message),
        lookup=driver.find_controller,
    )


async def remove_voter(driver: RequestDriver, node: int, directory: UUID) -> None:
    await driver.result_of(
        RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=directory),
        RemoveRaftVoterResponse,
        lambda response: raise_for(response.error_code, f"voter {node}", response.error_message),
        lookup=driver.find_controller,
    )


def _check_features(response: UpdateFeaturesResponse) -> None:
    for result in response.results:
        raise_for(result.error_code, f"feature {result.feature!r}", result.error_message)
    raise_for(response.error_code, "features", response.error_message)


def _check_quorum(response: DescribeQuorumResponse) -> None:
    raise_for(response.error_code, "the quorum", response.error_message)
    partition: DescribeQuorumResponsePartitionData = response.topics[0].partitions[0]
    raise_for(partition.error_code, "the quorum", partition.error_message)


def _quorum_replica_of(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id or ZERO_UUID,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
