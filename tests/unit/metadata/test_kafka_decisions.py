"""Records of a controller of Apache Kafka 4.3.1 after the same events on its brokers 2, 3 and 4
(read with its DumpLogSegments): the same changes of partitions, field by field. Topic t has
partitions on 2,3,4 and 3,4,2 and a minimum of 2 in sync, topic u one on 2,3 and 1."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from lograft.metadata.alter_partition import alter_partition
from lograft.metadata.brokers import fence_broker, heartbeat, register_broker
from lograft.metadata.elect_leaders import elect_leaders
from lograft.metadata.image import MetadataImage
from lograft.metadata.reassignment import alter_reassignments
from lograft.metadata.topics import create_topics
from lograft.metadata.types import ControllerResult
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from lograft.wire.messages.broker_registration import BrokerRegistrationRequest
from lograft.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from lograft.wire.messages.elect_leaders import ElectLeadersRequest
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from tests.unit.metadata.conftest import append, make_config

CONFIG = make_config()
FIELDS = {
    "isr": "isr",
    "leader": "leader",
    "leaderRecoveryState": "leader_recovery_state",
    "replicas": "replicas",
    "removingReplicas": "removing_replicas",
    "addingReplicas": "adding_replicas",
    "eligibleLeaderReplicas": "eligible_leader_replicas",
    "lastKnownElr": "last_known_elr",
}
DEFAULTS = {"leader": -2, "leaderRecoveryState": -1}
Change = dict[str, Any]
Changes = dict[str, Change]


class Controller:
    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.incarnations = iter(range(900, 999))

    def writes(self, outcome: ControllerResult[object]) -> Changes:
        changes = {}
        for record in outcome.records:
            if isinstance(record, PartitionChangeRecord):
                fields = {theirs: getattr(record, ours) for theirs, ours in FIELDS.items()}
                name = f"{self.image.topics[record.topic_id].name}-{record.partition_id}"
                changes[name] = {
                    field: value for field, value in fields.items() if value != DEFAULTS.get(field)
                }
        append(self.image, outcome.records)
        return changes

    def fence(self, broker_id: int) -> Changes:
        return self.writes(fence_broker(self.image, broker_id, config=CONFIG))

    def register(self, broker_id: int, *, clean: bool) -> Changes:
        epoch = self.image.brokers[broker_id].epoch
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=UUID(int=next(self.incarnations)),
            log_dirs=[UUID(int=5000 + broker_id)],
            previous_broker_epoch=epoch if clean else -1,
        )
        return self.writes(register_broker(self.image, request, cluster_id="c", config=CONFIG))

    def beat(self, broker_id: int, *, stop: bool = False) -> Changes:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset,
            want_shut_down=stop,
        )
        return self.writes(heartbeat(self.image, request, config=CONFIG))

    def propose(self, name: str, isr: list[int]) -> Changes:
        topic, _, index = name.partition("-")
        topic_id = self.image.topic_ids[topic]
        state = self.image.topics[topic_id].partitions[int(index)]
        proposal = AlterPartitionRequestPartitionData(
            partition_index=int(index),
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=isr,
        )
        request = AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.image.brokers[state.leader].epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[proposal])],
        )
        return self.writes(alter_partition(self.image, request, 2, config=CONFIG))


def topic(name: str, *replicas: list[int], **settings: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ],
    )


def test_the_same_changes(
    cluster: Callable[..., MetadataImage], new_id: Callable[[], UUID]
) -> None:
    controller = Controller(cluster(2, 3, 4))
    topics = [
        topic("t", [2, 3, 4], [3, 4, 2], min_insync_replicas="2"),
        topic("u", [2, 3]),
    ]
    request = CreateTopicsRequest(topics=topics)
    append(
        controller.image,
        create_topics(controller.image, request, config=CONFIG, new_id=new_id).records,
    )

    # Broker 2 is killed, then 3; 4 is shut down cleanly.
    assert controller.fence(2) == {
        "t-0": {"isr": [3, 4], "leader": 3},
        "t-1": {"isr": [3, 4]},
        "u-0": {"isr": [3], "leader": 3},
    }
    below = {"isr": [4], "leader": 4, "eligibleLeaderReplicas": [3]}
    assert controller.fence(3) == {
        "t-0": below,
        "t-1": below,
        "u-0": {"isr": [], "leader": -1, "eligibleLeaderReplicas": [3], "lastKnownElr": [3]},
    }
    nobody = {"isr": [], "leader": -1, "eligibleLeaderReplicas": [3, 4], "lastKnownElr": [4]}
    assert controller.beat(4, stop=True) == {"t-0": nobody, "t-1": nobody}
    assert controller.beat(4, stop=True) == {}

    # 3 returns after its crash, 2 after its own, and 4, which has all records.
    assert controller.register(3, clean=False) == {
        "t-0": {"eligibleLeaderReplicas": [4]},
        "t-1": {"eligibleLeaderReplicas": [4]},
        "u-0": {"eligibleLeaderReplicas": []},
    }
    assert controller.beat(3) == {
        "u-0": {"isr": [3], "leader": 3, "leaderRecoveryState": 1, "lastKnownElr": []}
    }
    assert controller.register(2, clean=False) == {}
    assert controller.beat(2) == {}
    assert controller.propose("u-0", [2, 3]) == {"u-0": {"isr": [2, 3], "leaderRecoveryState": 0}}
    assert controller.register(4, clean=True) == {}
    home = {"isr": [4], "leader": 4, "eligibleLeaderReplicas": [], "lastKnownElr": []}
    assert controller.beat(4) == {"t-0": home, "t-1": home}
    assert controller.propose("t-1", [2, 4]) == {"t-1": {"isr": [2, 4]}}
    assert controller.propose("t-0", [3, 4]) == {"t-0": {"isr": [3, 4]}}
    assert controller.propose("t-0", [2, 3, 4]) == {"t-0": {"isr": [2, 3, 4]}}
    assert controller.propose("t-1", [2, 3, 4]) == {"t-1": {"isr": [2, 3, 4]}}

    all_preferred = ElectLeadersRequest(election_type=0, topic_partitions=None)
    outcome = elect_leaders(controller.image, all_preferred, config=CONFIG)
    assert controller.writes(outcome) == {
        "t-0": {"leader": 2},
        "t-1": {"leader": 3},
        "u-0": {"leader": 2},
    }

    # u goes from 2,3 to 4,3; then 3 and 4 are killed.
    partition = ReassignablePartition(partition_index=0, replicas=[4, 3])
    reassignment = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="u", partitions=[partition])]
    )
    moved = alter_reassignments(controller.image, reassignment, config=CONFIG)
    assert controller.writes(moved) == {
        "u-0": {"replicas": [4, 3, 2], "removingReplicas": [2], "addingReplicas": [4]}
    }
    assert controller.propose("u-0", [2, 3, 4]) == {
        "u-0": {
            "isr": [3, 4],
            "leader": 4,
            "replicas": [4, 3],
            "removingReplicas": [],
            "addingReplicas": [],
        }
    }
    assert controller.fence(3) == {
        "t-0": {"isr": [2, 4]},
        "t-1": {"isr": [2, 4], "leader": 4},
        "u-0": {"isr": [4]},
    }
    assert controller.fence(4) == {
        "t-0": {"isr": [2], "eligibleLeaderReplicas": [4]},
        "t-1": {"isr": [2], "leader": 2, "eligibleLeaderReplicas": [4]},
        "u-0": {"isr": [], "leader": -1, "eligibleLeaderReplicas": [4], "lastKnownElr": [4]},
    }
