"""Services that the broker and the controller of a node share, also on a node with one role only.

Handlers of a controller listener's APIs use only `context.shared`; those of a broker's listener may
also use `context.broker`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from lograft.broker.client_quotas import ClientQuotas
from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.topic_users import TopicUsers
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.raft_driver import ReplicaView
from lograft.broker.quorum.snapshots import Quorum
from lograft.consensus import messages as raft_messages
from lograft.consensus.types import ReplicaKey, Voter, VoterSet
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Address, Runtime
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import Epoch, NodeId, Offset, TopicIdPartition
from lograft.storage.log import Log
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

T = TypeVar("T")


class ControllerPort(Protocol):
    """The controller in this process, which may be the active one."""

    #: Requests that the leader of a raft partition hand over to the first replica.
    hand_over: Callable[[TopicIdPartition, NodeId], Awaitable[ErrorCode]] | None

    @property
    def image(self) -> MetadataImage | None:
        """None on a controller that is not active."""

    def submit(self, decision: Callable[[MetadataImage], ControllerResult[T]]) -> Awaitable[T]:
        """Returns the decision's reply once its records are committed. Raises NotController."""

    def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> Awaitable[BrokerRegistrationResponse]: ...

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Awaitable[BrokerHeartbeatResponse]: ...

    def on_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        """The connection with a broker's heartbeats was closed."""


class QuorumView(Protocol):
    """This node's view of the metadata quorum (broker/quorum/raft_driver.py)."""

    @property
    def me(self) -> ReplicaKey: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader(self) -> NodeId: ...

    @property
    def epoch(self) -> Epoch: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def quorum(self) -> Quorum: ...

    @property
    def voters(self) -> VoterSet: ...

    @property
    def log(self) -> Log: ...

    def leader_endpoint(self) -> Address | None: ...

    def learn(self, node_id: NodeId, address: Address) -> None: ...

    def replicas(self) -> Sequence[ReplicaView]: ...

    def describe_voter(self) -> Voter: ...

    def ask(
        self, request: raft_messages.Request, *, bytes_max: int = 0
    ) -> Awaitable[raft_messages.Response]: ...


METADATA_LAG: Final = Gauge(
    "lograft_metadata_lag", "Committed metadata records that this node has not applied yet."
)
NOT_APPLIED: Final = Gauge(
    "lograft_metadata_apply_failures", "Dynamic settings that this node could not apply."
)


class SharedServices:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        *,
        cluster_id: str,
        controller: ControllerPort | None,
        quorum: QuorumView,
        peers: Peers,
    ) -> None:
        config = metadata.static_config
        self.runtime = runtime
        self.clock = runtime.clock
        self.node_id: NodeId = config.node_id
        self.cluster_id = cluster_id
        #: Owns the image and the configuration.
        self.metadata = metadata
        self.quotas = ClientQuotas(metadata)
        #: The controller in this process; None on a node that is only a broker.
        self.local_controller = controller
        self.quorum = quorum
        #: Requests to all brokers, including this one.
        self.brokers = BrokerLink(
            config.node_id,
            peers,
            listener=config.inter_broker_listener_name,
            metadata=metadata,
        )
        self.topic_users = TopicUsers(metadata, self.brokers)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def config(self) -> BrokerConfig:
        """The static configuration with dynamic values applied."""
        return self.metadata.config

    @property
    def kraft_version(self) -> int:
        """kraft.version, which is in control records and so not part of the image."""
        return self.quorum.quorum.kraft_version

    def collect_samples(self) -> Iterator[Sample]:
        yield from self.image.collect_samples()
        yield METADATA_LAG.sample(max(0, self.quorum.high_watermark - 1 - self.image.offset))
        yield from self.quotas.collect_samples()
        yield NOT_APPLIED.sample(self.metadata.count_apply_failures())
