"""Registration, heartbeats and fencing, and their effect on partitions."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from lograft.metadata.broker_sessions import BrokerSessions
from lograft.metadata.brokers import (
    fence_broker,
    heartbeat,
    register_broker,
    register_controller,
    unregister_broker,
)
from lograft.metadata.directories import assign_directories
from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import place_replicas
from lograft.metadata.types import RECORDS_PER_BATCH, ControllerResult, LeaderRecovery
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import ReplicationMode, TopicIdPartition
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from lograft.wire.messages.controller_registration import ControllerRegistrationRequest
from lograft.wire.messages.unregister_broker import UnregisterBrokerRequest
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from lograft.wire.records.no_op_record import NoOpRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.unit.metadata.conftest import make_config

CONFIG = make_config()
Cluster = Callable[..., MetadataImage]
Apply = Callable[..., None]
T = UUID(int=7)


def registration(broker_id: int = 1, **more: Any) -> BrokerRegistrationRequest:
    values: dict[str, Any] = {
        "cluster_id": "c",
        "incarnation_id": UUID(int=900 + broker_id),
        "listeners": [Listener(name="PLAINTEXT", host="h", port=9092)],
        "features": [
            Feature(name="metadata.version", min_supported_version=19, max_supported_version=30)
        ],
        "log_dirs": [UUID(int=5000 + broker_id)],
    }
    return BrokerRegistrationRequest(broker_id=broker_id, **(values | more))


def beat(
    image: MetadataImage, broker_id: int = 1, **more: Any
) -> ControllerResult[BrokerHeartbeatResponse]:
    values: dict[str, Any] = {
        "broker_epoch": image.brokers[broker_id].epoch,
        "current_metadata_offset": image.offset,
    }
    return heartbeat(
        image, BrokerHeartbeatRequest(broker_id=broker_id, **(values | more)), config=CONFIG
    )


def with_partition(
    image: MetadataImage, apply: Apply, replicas: list[int], **more: Any
) -> MetadataImage:
    record = PartitionRecord(
        partition_id=0,
        topic_id=T,
        replicas=replicas,
        isr=more.pop("isr", replicas),
        leader=more.pop("leader", replicas[0]),
        leader_epoch=0,
        partition_epoch=0,
        directories=[UUID(int=5000 + replica) for replica in replicas],
        **more,
    )
    apply(image, [TopicRecord(name="t", topic_id=T), record])
    return image


def leader_and_isr(image: MetadataImage) -> tuple[int, int, tuple[int, ...]]:
    state = image.topics[T].partitions[0]
    return state.leader, state.leader_epoch, state.isr


def state(image: MetadataImage) -> str:
    broker = image.brokers[1]
    if broker.fenced:
        return "fenced"
    return "shutting down" if broker.in_controlled_shutdown else "active"


def test_a_fenced_broker_must_know_it_before_it_is_trusted_again(
    cluster: Cluster, apply: Apply
) -> None:
    image = cluster()
    apply(image, register_broker(image, registration(), cluster_id="c", config=CONFIG).records)
    apply(image, beat(image).records)
    apply(image, fence_broker(image, 1, config=CONFIG).records)
    unaware = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=image.brokers[1].epoch, current_metadata_offset=image.offset - 1
    )
    answer = heartbeat(image, unaware, config=CONFIG, fenced_at=image.offset)
    assert (answer.records, answer.reply.is_fenced) == ((), True)
    apply(image, beat(image).records)
    assert state(image) == "active"


def test_a_brokers_life(cluster: Cluster, apply: Apply) -> None:
    image = cluster()
    outcome = register_broker(image, registration(), cluster_id="c", config=CONFIG)
    epoch = outcome.reply.broker_epoch
    assert epoch == image.offset + 1
    apply(image, outcome.records)
    assert image.offset == epoch  # the record's own offset
    assert state(image) == "fenced"

    behind = beat(image, current_metadata_offset=epoch - 1)
    assert behind.records == ()
    assert (behind.reply.is_caught_up, behind.reply.is_fenced) == (False, True)

    outcome2 = beat(image)
    apply(image, outcome2.records)
    assert (outcome2.reply.is_caught_up, outcome2.reply.is_fenced) == (True, False)
    assert state(image) == "active"
    assert beat(image).records == ()

    with_partition(image, apply, [1])
    first = beat(image, want_shut_down=True)
    apply(image, first.records)
    assert not first.reply.should_shut_down
    assert state(image) == "shutting down"
    assert leader_and_isr(image) == (-1, 1, ())
    assert image.topics[T].partitions[0].elr == (1,)
    second = beat(image, want_shut_down=True)
    apply(image, second.records)
    assert second.reply.should_shut_down
    assert state(image) == "fenced"

    again = registration(incarnation_id=UUID(int=1), previous_broker_epoch=epoch)
    apply(image, register_broker(image, again, cluster_id="c", config=CONFIG).records)
    apply(image, beat(image).records)
    assert state(image) == "active"
    assert leader_and_isr(image) == (1, 2, (1,))
    assert image.topics[T].partitions[0].leader_recovery == LeaderRecovery.RECOVERED


def test_a_new_incarnation_leads_nothing_at_first(cluster: Cluster, apply: Apply) -> None:
    """After a crash: the old registration was never fenced."""
    image = with_partition(cluster(1, 2), apply, [1, 2])
    outcome = register_broker(image, registration(), cluster_id="c", config=CONFIG)
    # Written last, so that a log with this record has the others, too.
    assert isinstance(outcome.records[-1], RegisterBrokerRecord)
    apply(image, outcome.records)
    assert outcome.reply.broker_epoch == image.offset
    assert image.brokers[1].epoch == outcome.reply.broker_epoch
    assert leader_and_isr(image) == (2, 1, (2,))


def test_what_does_not_fit_into_one_batch_comes_in_several() -> None:
    records = (NoOpRecord(),) * (RECORDS_PER_BATCH * 2 + 1)
    sizes = [len(batch) for batch in ControllerResult(records, None, atomic=False).batches()]
    assert sizes == [RECORDS_PER_BATCH, RECORDS_PER_BATCH, 1]
    assert list(ControllerResult(records, None).batches()) == [records]
    assert list(ControllerResult((), None).batches()) == []


@pytest.mark.parametrize("fenced_before", [False, True])
def test_who_crashed_is_not_relied_on(cluster: Cluster, apply: Apply, fenced_before: bool) -> None:
    """No other replica has the records: it leads again, but the partition must recover."""
    image = with_partition(cluster(1), apply, [1])
    if fenced_before:
        apply(image, fence_broker(image, 1, config=CONFIG).records)
        assert image.topics[T].partitions[0].elr == (1,)
    apply(image, register_broker(image, registration(), cluster_id="c", config=CONFIG).records)
    assert leader_and_isr(image) == (-1, 1, ())
    partition = image.topics[T].partitions[0]
    assert (partition.elr, partition.last_known_elr) == ((), (1,))
    apply(image, beat(image).records)
    assert leader_and_isr(image) == (1, 2, (1,))
    partition = image.topics[T].partitions[0]
    assert (partition.elr, partition.last_known_elr) == ((), ())
    assert partition.leader_recovery == LeaderRecovery.RECOVERING


def test_without_elr_the_last_member_stays_in_sync(cluster: Cluster, apply: Apply) -> None:
    alone = with_partition(cluster(1, elr=False), apply, [1])
    apply(alone, register_broker(alone, registration(), cluster_id="c", config=CONFIG).records)
    assert leader_and_isr(alone) == (-1, 1, (1,))
    apply(alone, beat(alone).records)
    assert leader_and_isr(alone) == (1, 2, (1,))


def test_the_same_incarnation_keeps_its_epoch(cluster: Cluster, apply: Apply) -> None:
    image = with_partition(cluster(1), apply, [1])
    epoch = image.brokers[1].epoch
    same = registration(incarnation_id=image.brokers[1].incarnation_id)
    outcome = register_broker(image, same, cluster_id="c", config=CONFIG, is_predecessor_alive=True)
    assert outcome.reply.broker_epoch == epoch
    assert len(outcome.records) == 1
    assert not image.brokers[1].fenced
    apply(image, outcome.records)
    assert not image.brokers[1].fenced, "a late copy of the request must not fence a leader"
    assert leader_and_isr(image)[0] == 1


@pytest.mark.parametrize(
    ("request_", "alive", "code"),
    [
        (registration(cluster_id="other"), False, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(), True, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (registration(is_migrating_zk_broker=True), False, ErrorCode.INVALID_REQUEST),
        (
            registration(features=[Feature(name="metadata.version", max_supported_version=29)]),
            False,
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            registration(listeners=[Listener(name="A", host="h", security_protocol=99)]),
            False,
            ErrorCode.INVALID_REQUEST,
        ),
        (
            registration(listeners=[Listener(name="A", host="h")] * 2),
            False,
            ErrorCode.INVALID_REQUEST,
        ),
        (
            registration(features=[Feature(name="x"), Feature(name="x")]),
            False,
            ErrorCode.INVALID_REQUEST,
        ),
        (registration(log_dirs=[UUID(int=1)]), False, ErrorCode.INVALID_REQUEST),
        (registration(log_dirs=[T, T, T]), False, ErrorCode.INVALID_REQUEST),
        (registration(log_dirs=[UUID(int=5002)]), False, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_registrations_that_cannot_be(
    cluster: Cluster, request_: BrokerRegistrationRequest, alive: bool, code: ErrorCode
) -> None:
    with pytest.raises(Rejected) as refusal:
        register_broker(
            cluster(1, 2), request_, cluster_id="c", config=CONFIG, is_predecessor_alive=alive
        )
    assert refusal.value.code == code


def test_heartbeats_of_strangers_are_refused(cluster: Cluster) -> None:
    image = cluster(1)
    with pytest.raises(Rejected) as refusal:
        heartbeat(image, BrokerHeartbeatRequest(broker_id=2, broker_epoch=1), config=CONFIG)
    assert refusal.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(Rejected) as refusal:
        beat(image, broker_epoch=999)
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_fencing_moves_leaders_within_the_isr(cluster: Cluster, apply: Apply) -> None:
    image = with_partition(cluster(1, 2, 3), apply, [1, 2, 3], isr=[1, 3])
    apply(image, fence_broker(image, 1, config=CONFIG).records)
    assert leader_and_isr(image) == (3, 1, (3,))
    assert fence_broker(image, 1, config=CONFIG).records == ()
    assert fence_broker(image, 9, config=CONFIG).records == ()
    apply(image, fence_broker(image, 3, config=CONFIG).records)
    assert leader_and_isr(image) == (-1, 2, ())
    # Broker 1 returns, but only 3 has all the records.
    apply(image, beat(image, 1).records)
    assert leader_and_isr(image) == (-1, 2, ())
    apply(image, beat(image, 3).records)
    assert leader_and_isr(image) == (3, 3, (3,))


def test_what_the_replicas_decide_keeps_no_broker(cluster: Cluster, apply: Apply) -> None:
    image = with_partition(cluster(1), apply, [1], replication_mode=ReplicationMode.RAFT)
    assert beat(image, want_shut_down=True).reply.should_shut_down


def test_a_broker_that_has_shut_down_must_register_again(cluster: Cluster, apply: Apply) -> None:
    image = with_partition(cluster(1), apply, [1])
    for _ in range(2):
        apply(image, beat(image, want_shut_down=True).records)
    late = beat(image)
    assert late.records == ()
    assert late.reply.is_fenced


def test_a_broker_that_wants_it_is_fenced(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    outcome = beat(image, want_fence=True)
    apply(image, outcome.records)
    assert outcome.reply.is_fenced
    assert image.brokers[1].fenced
    assert beat(image, want_fence=True).records == ()


def test_an_eligible_replica_leads_when_the_isr_is_empty(cluster: Cluster, apply: Apply) -> None:
    """A partition as Apache Kafka leaves it after a clean shutdown."""
    image = with_partition(
        cluster(fenced=[1]), apply, [1], isr=[], leader=-1, eligible_leader_replicas=[1]
    )
    apply(image, beat(image).records)
    assert leader_and_isr(image) == (1, 1, (1,))
    assert image.topics[T].partitions[0].elr == ()


def test_a_broken_disk_takes_its_partitions_along(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1, 2)
    both = registration(log_dirs=[UUID(int=5001), UUID(int=666)])
    apply(image, register_broker(image, both, cluster_id="c", config=CONFIG).records)
    apply(image, beat(image).records)
    with_partition(image, apply, [1, 2])
    outcome = beat(image, offline_log_dirs=[UUID(int=5001), UUID(int=404)])
    apply(image, outcome.records)
    assert image.brokers[1].log_dirs == (UUID(int=666),)
    assert leader_and_isr(image) == (2, 1, (2,))
    assert beat(image, offline_log_dirs=[UUID(int=5001)]).records == ()


def test_a_broker_without_a_disk_is_fenced(cluster: Cluster, apply: Apply) -> None:
    image = with_partition(cluster(1, 2), apply, [1, 2])
    outcome = beat(image, offline_log_dirs=[UUID(int=5001)])
    apply(image, outcome.records)
    assert outcome.reply.is_fenced
    assert leader_and_isr(image) == (2, 1, (2,))
    assert beat(image, offline_log_dirs=[UUID(int=5001)]).records == ()


def test_replicas_are_told_apart_by_directory(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    both = registration(log_dirs=[UUID(int=5001), UUID(int=666)])
    apply(image, register_broker(image, both, cluster_id="c", config=CONFIG).records)
    apply(image, beat(image).records)
    with_partition(image, apply, [1])
    epoch = image.brokers[1].epoch

    def assign(directory: int, *keys: TopicIdPartition) -> dict[TopicIdPartition, ErrorCode]:
        outcome = assign_directories(image, 1, epoch, {UUID(int=directory): keys}, config=CONFIG)
        apply(image, outcome.records)
        return outcome.reply

    here, elsewhere = TopicIdPartition(T, 0), TopicIdPartition(T, 5)
    nowhere = TopicIdPartition(UUID(int=8), 0)
    assert assign(666, here, here, elsewhere, nowhere) == {
        here: ErrorCode.INVALID_REQUEST,
        elsewhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        nowhere: ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert image.topics[T].partitions[0].directories == (UUID(int=666),)
    before = image.topics[T].partitions[0]
    assert assign(666, here) == {}
    assert image.topics[T].partitions[0] is before
    # A directory that failed before the controller knew its replicas.
    assert assign(404, here) == {}
    assert leader_and_isr(image) == (-1, 1, ())
    assert assign(5001, here) == {}
    assert leader_and_isr(image) == (1, 2, (1,))
    with pytest.raises(Rejected):
        assign_directories(image, 1, epoch + 1, {}, config=CONFIG)


def test_an_unregistered_broker_is_gone(cluster: Cluster, apply: Apply) -> None:
    image = with_partition(cluster(1, 2), apply, [1, 2])
    apply(
        image, unregister_broker(image, UnregisterBrokerRequest(broker_id=1), config=CONFIG).records
    )
    assert list(image.brokers) == [2]
    assert leader_and_isr(image) == (2, 1, (2,))
    with pytest.raises(Rejected) as refusal:
        unregister_broker(image, UnregisterBrokerRequest(broker_id=1), config=CONFIG)
    assert refusal.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controllers_register(cluster: Cluster, apply: Apply) -> None:
    image = cluster()
    request = ControllerRegistrationRequest(controller_id=3, incarnation_id=T)
    apply(image, register_controller(image, request).records)
    assert image.controllers[3].incarnation_id == T


def test_sessions_end_in_silence() -> None:
    sessions = BrokerSessions(timeout_ms=100)
    sessions.expect(1, epoch=5, now_ms=0)
    assert not sessions.is_alive(1, epoch=5, now_ms=0)  # unknown
    assert sessions.find_expired(100) == []
    assert sessions.next_expiry_ms() == 101
    assert sessions.find_expired(101) == [(1, 5)]
    sessions.on_heartbeat(1, epoch=5, metadata_offset=9, now_ms=101)
    assert sessions.is_alive(1, epoch=5, now_ms=201)
    assert not sessions.is_alive(1, epoch=6, now_ms=201)
    assert not sessions.is_alive(1, epoch=5, now_ms=202)
    sessions.forget(1, epoch=4)  # of an earlier registration
    assert sessions.find_expired(10_000) == [(1, 5)]
    sessions.forget(1, epoch=5)
    assert sessions.find_expired(10_000) == []


def test_a_broker_without_a_connection_is_suspect_until_it_speaks() -> None:
    sessions = BrokerSessions(timeout_ms=100)
    sessions.expect(1, epoch=5, now_ms=0)
    sessions.on_heartbeat(2, epoch=6, metadata_offset=9, now_ms=0)
    assert sessions.suspects(0) == [(1, 5)]
    assert sessions.suspects(1) == [(1, 5), (2, 6)]  # late
    sessions.on_heartbeat(1, epoch=5, metadata_offset=9, now_ms=10)
    assert sessions.suspects(0) == []
    sessions.on_disconnected(1, epoch=4)  # of an earlier registration
    assert sessions.is_alive(1, epoch=5, now_ms=10)
    sessions.on_disconnected(1, epoch=5)
    assert not sessions.is_alive(1, epoch=5, now_ms=10)
    assert sessions.is_suspect(1, epoch=5, last_heartbeat_before_ms=0)
    assert not sessions.is_suspect(1, epoch=4, last_heartbeat_before_ms=0)
    assert not sessions.is_suspect(2, epoch=6, last_heartbeat_before_ms=0)
    assert sessions.is_suspect(2, epoch=6, last_heartbeat_before_ms=1)


def test_cordoned_log_dirs_are_noted_and_new_replicas_go_elsewhere(
    cluster: Cluster, apply: Apply
) -> None:
    image = cluster(1, 2)
    directories = list(image.brokers[1].log_dirs)
    assert directories
    outcome = beat(image, cordoned_log_dirs=directories)
    (record,) = outcome.records
    assert isinstance(record, BrokerRegistrationChangeRecord)
    apply(image, outcome.records)
    assert image.brokers[1].cordoned_log_dirs == tuple(directories)
    assert not image.brokers[1].takes_replicas
    # A repeated heartbeat changes nothing, and neither does one of an older broker.
    assert beat(image, cordoned_log_dirs=directories).records == ()
    assert beat(image).records == ()
    assert place_replicas(image, "t", range(20), replication_factor=1) == [(2,)] * 20
    with pytest.raises(Rejected, match="only 1 registered broker"):
        place_replicas(image, "t", range(1), replication_factor=2)
    # A broker that has a replica keeps it when the replication factor increases.
    ((first, second),) = place_replicas(image, "t", range(1), replication_factor=2, holders=(1,))
    assert {first, second} == {1, 2}
    apply(image, beat(image, 2, cordoned_log_dirs=list(image.brokers[2].log_dirs)).records)
    with pytest.raises(Rejected, match="cordoned") as refusal:
        place_replicas(image, "t", range(1), replication_factor=1)
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    apply(image, beat(image, cordoned_log_dirs=[]).records)
    assert image.brokers[1].takes_replicas


def test_cordoned_log_dirs_wait_for_the_metadata_version(cluster: Cluster) -> None:
    image = cluster(1)
    image.features["metadata.version"] = 29
    assert beat(image, cordoned_log_dirs=list(image.brokers[1].log_dirs)).records == ()
