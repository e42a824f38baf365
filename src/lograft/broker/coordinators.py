"""The coordinators of this broker: who coordinates what, and where their records lie."""

from collections.abc import Callable
from typing import Any, Final

from lograft.broker.coordinator_runtime import CoordinatorKind, CoordinatorRuntime
from lograft.broker.partition import Partition
from lograft.coordination.group_shard import GroupShard
from lograft.coordination.types import Effect, Surroundings
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.image import MetadataImage
from lograft.model.broker_configs import BrokerConfig
from lograft.model.seams import Runtime
from lograft.model.types import OFFSETS_TOPIC
from lograft.wire.record_frames import GROUPS


class Coordinators:
    def __init__(
        self,
        runtime: Runtime,
        *,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
    ) -> None:
        around = Surroundings(config, image, runtime.clock.wall_ms, runtime.randomness.uuid)
        self.groups: Final = CoordinatorRuntime(
            CoordinatorKind(
                topic=OFFSETS_TOPIC,
                frames=GROUPS,
                make_core=lambda index, epoch: GroupShard(around),
                partition_count=lambda config: config.offsets_topic_num_partitions,
                compression=lambda config: config.offsets_topic_compression_codec,
                on_effect=_no_effect,
            ),
            runtime,
            config=config,
            image=image,
        )
        self._by_topic: dict[str, CoordinatorRuntime[Any]] = {self.groups.topic: self.groups}

    def on_role(self, partition: Partition) -> None:
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is not None:
            coordinator.on_role(partition)

    def on_image(self, delta: MetadataDelta) -> None:
        for coordinator in self._by_topic.values():
            coordinator.on_image(delta)

    def stop(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.stop()

    def statistics(self) -> dict[str, int]:
        return {
            f"{topic.strip('_')}_{name}": count
            for topic, coordinator in self._by_topic.items()
            for name, count in coordinator.statistics().items()
        }


def _no_effect(effect: Effect) -> None:
    raise AssertionError(f"groups have no effects: {effect}")
