"""A minimal consumer, and a shard with topics, for tests of consumer groups."""

from uuid import UUID

from lograft.coordination.classic_member import Client
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_heartbeat import heartbeat
from lograft.metadata.types import ConfigResource, ResourceType
from lograft.model.types import Epoch, Offset
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.remove_topic_record import RemoveTopicRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.unit.coordination.shard_driver import ShardDriver

Partitions = dict[UUID, list[int]]


class Shard(ShardDriver):
    """With a metadata log."""

    def apply(self, *records: Message) -> None:
        offset = Offset(self.image.offset + len(records))
        delta = self.image.apply(records, offset=offset, epoch=Epoch(1))
        self.replies, self.written = [], []
        self.run(self.shard.on_image(delta))

    def create_topic(self, name: str, partitions: int) -> UUID:
        topic_id = self.image.topic_ids.get(name) or self._new_uuid()
        known = self.image.topics.get(topic_id)
        first = 0 if known is None else len(known.partitions)
        head = [] if known else [TopicRecord(name=name, topic_id=topic_id)]
        self.apply(
            *head,
            *(
                PartitionRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    directories=[UUID(int=1000)],
                )
                for index in range(first, partitions)
            ),
        )
        return topic_id

    def delete_topic(self, name: str) -> None:
        self.apply(RemoveTopicRecord(topic_id=self.image.topic_ids[name]))

    def set_group(self, group_id: str, name: str, value: str) -> None:
        resource = ConfigResource(ResourceType.GROUP, group_id)
        self.apply(
            ConfigRecord(
                resource_type=resource.type, resource_name=group_id, name=name, value=value
            )
        )

    def consumers(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group


class Consumer:
    """Sends changed fields, like clients; revokes partitions when the response requires it."""

    def __init__(self, shard: Shard, member_id: str, group_id: str = "g") -> None:
        self.shard = shard
        self.member_id = member_id
        self.group_id = group_id
        self.instance_id: str | None = None
        self.epoch = 0
        self.has: Partitions = {}
        self.assigned: Partitions = {}
        self.topics: list[str] | None = None
        self.regex: str | None = None
        #: A response was lost: it sends all fields, and so gets all fields.
        self.is_unsure = False

    def ask(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> None:
        client = Client(client_id=self.member_id, host="/127.0.0.1", api_version=version)
        self.shard.ask(
            self.member_id,
            lambda shard, ticket, now_ms: heartbeat(
                shard.consumer, request, client, ticket, now_ms
            ),
        )

    def answer(self) -> ConsumerGroupHeartbeatResponse:
        (reply,) = (each for who, each in self.shard.replies if who == self.member_id)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    def join(self, topics: list[str] | None, **fields: object) -> ConsumerGroupHeartbeatResponse:
        self.epoch, self.has, self.assigned = 0, {}, {}
        self.topics, self.regex = topics, fields.get("subscribed_topic_regex")  # type: ignore[assignment]
        return self.beat(
            **{"rebalance_timeout_ms": 60_000, **fields},  # type: ignore[arg-type]
            subscribed_topic_names=topics,
            topic_partitions=[],
        )

    def beat(self, *, lost: bool = False, **fields: object) -> ConsumerGroupHeartbeatResponse:
        """`lost`: it does not receive the response."""
        fields.setdefault(
            "topic_partitions",
            [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=t, partitions=list(found))
                for t, found in self.has.items()
            ],
        )
        if self.is_unsure:
            fields.setdefault("subscribed_topic_names", self.topics)
            fields.setdefault("subscribed_topic_regex", self.regex)
            fields.setdefault("rebalance_timeout_ms", 60_000)
        self.is_unsure = lost
        values = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            **fields,
        }
        self.ask(ConsumerGroupHeartbeatRequest(**values))  # type: ignore[arg-type]
        if not self.shard.replies:
            self.is_unsure = True
            return ConsumerGroupHeartbeatResponse(error_code=-1)  # the append failed
        answer = self.answer()
        if answer.error_code == 0 and not lost:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    partition.topic_id: list(partition.partitions)
                    for partition in answer.assignment.topic_partitions
                }
                # New partitions may be used immediately, the others are revoked by `reconcile`.
                for topic_id, partitions in self.assigned.items():
                    mine = self.has.setdefault(topic_id, [])
                    mine += [partition for partition in partitions if partition not in mine]
        return answer

    def reconcile(self) -> None:
        """Revokes the partitions that are not assigned to it."""
        self.has = {t: list(partitions) for t, partitions in self.assigned.items() if partitions}

    def leave(self, epoch: int = -1) -> None:
        self.beat(member_epoch=epoch, topic_partitions=None)
        self.epoch, self.has, self.assigned = 0, {}, {}
