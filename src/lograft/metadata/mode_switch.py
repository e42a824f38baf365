"""The controller's part of the online switch of a partition between ISR and Raft.

    isr ──── enter ────▶ entering ──── the leader's report ──────▶ raft
     ▲ ◀─── rollback ────┘                                          │ leave
     └─── enough in sync ─── leaving, led ◀── appoint ── leaving ◀──┘

The topic config is the desired mode, and the partition's record has the actual state. Every step is
a full PartitionRecord, because a PartitionChangeRecord can only increment the leader epoch. All
functions are decisions on the image. When they reject or delay a step, `ModeStatus.reason` has the
explanation. Each stay in raft mode is called a *life* and is identified by its first epoch.

The problem. The two modes acknowledge a record by different evidence: ISR when every in-sync
replica has it in its log, in memory; Raft when a majority has it on disk. They also elect leaders
by different rules: the controller from the ISR, or the voters among themselves. A switch under load
must not let a record that was acknowledged by one rule be lost by an election of the other, and at
no time may both rules be able to elect.

Entering. The controller starts a new leader epoch with the same leader. The rules of ISR still
apply in full, so the switch can be rolled back, but the leader first appends a control batch, and
every replica fsyncs its whole log before each fetch. When the leader and all in-sync replicas have
that batch on disk, the leader reports so, and the controller writes `raft`. It rejects the report
if the partition epoch or the ISR has changed since, or if the ISR is not a majority of the
replicas. Only from that record on may replicas start elections. So at that moment a majority has
every acknowledged record on disk, and no log without them can win an election.

The control batch is essential. Raft prefers logs by the epoch of their last record, so an older
log with a record of a higher epoch that was never committed would otherwise win against logs with
more acknowledged records (figure 8 of the Raft paper). The fsync is, too: records fetched in
earlier epochs may be only in the page cache.

Leaving. The controller writes `leaving` with a new epoch and no leader, and wins that election
itself. A replica that applies the record persists a vote for the controller, fsyncs its whole log
and then reports the log's end. From the vote on, also after a restart, it neither appends, votes,
acknowledges nor starts an election until a record of a higher epoch arrives. With the reports of a
majority, the controller appoints the replica with the greatest log end. A voter majority of the old
life is then impossible, and since every committed record is on the disks of a majority, the
greatest of these logs has it. A replica that is in a higher epoch already rejects the vote, and the
controller starts again with an epoch above that one.

The appointed leader appends a control batch but acknowledges nothing until min.insync.replicas
replicas have its log; only then does the controller write `isr`. Otherwise a record could be
acknowledged under ISR's rules by fewer replicas than these rules tolerate losing. If this leader
fails before that, the controller collects the log ends again in a higher epoch.

Votes and fetches carry the life. Without it, a vote from an earlier stay in raft mode could count
in a later one, although the controller has elected leaders in between. The protocol was checked
with an explicit-state model: without the control batch, the fsync before the report, the life or
the minimum ISR of the appointed leader, it loses a record within 12 to 27 steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lograft.metadata.elections import is_reassigning
from lograft.metadata.image import MetadataImage
from lograft.metadata.image_records import partition_record
from lograft.metadata.types import (
    REPLICATION_VERSION,
    LeaderRecovery,
    PartitionState,
    ResourceType,
    TopicState,
)
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_NODE, ReplicationMode
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_record import PartitionRecord

MODE: Final = "replication.mode"
MODE_OF_PARTITIONS: Final = "replication.mode.partitions"

ISR, ENTERING = ReplicationMode.ISR, ReplicationMode.ENTERING
RAFT, LEAVING = ReplicationMode.RAFT, ReplicationMode.LEAVING


class ModeStatus(NamedTuple):
    mode: ReplicationMode
    desired: ReplicationMode
    #: What a switch waits for; empty if none is in progress or the controller takes the next step.
    reason: str


class LogEndPosition(NamedTuple):
    """The position of a log's end. The greatest one of a majority includes everything committed."""

    last_epoch: int
    end_offset: int


@dataclass(slots=True)
class Collection:
    """The reports in one `leaving` epoch. Only in memory: a new controller collects them again."""

    epoch: int
    log_ends: dict[int, LogEndPosition] = field(default_factory=dict)


def desired_mode(image: MetadataImage, topic: TopicState, index: int) -> ReplicationMode:
    """The mode in the topic's configs, which were validated when they were set."""
    settings = image.config_of(ResourceType.TOPIC, topic.name)
    for entry in settings.get(MODE_OF_PARTITIONS, "").split(","):
        partition, _, mode = entry.strip().partition(":")
        if partition == str(index):
            return ReplicationMode[mode.upper()]
    return ReplicationMode[settings.get(MODE, ISR.text).upper()]


def check_modes(image: MetadataImage, settings: Mapping[str, str]) -> list[FeatureLevelRecord]:
    """Checks whether a topic may have these configs; raises Rejected otherwise. Returns the record
    that enables raft mode with the first such topic, so that Apache Kafka can read the metadata of
    clusters that never use it."""
    entries = (settings.get(MODE, ""), *settings.get(MODE_OF_PARTITIONS, "").split(","))
    if is_enabled(image) or not any(entry.strip().endswith(RAFT.text) for entry in entries):
        return []
    registered = [(node.broker_id, node.features) for node in image.brokers.values()]
    registered += [(node.controller_id, node.features) for node in image.controllers.values()]
    for node_id, features in registered:
        if REPLICATION_VERSION not in features or 1 not in features[REPLICATION_VERSION]:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"Raft replication cannot be enabled, because node {node_id} does not support"
                f" {REPLICATION_VERSION} 1.",
            )
    return [FeatureLevelRecord(name=REPLICATION_VERSION, feature_level=1)]


def is_enabled(image: MetadataImage) -> bool:
    return image.features.get(REPLICATION_VERSION, 0) >= 1


def majority(replicas: tuple[int, ...]) -> int:
    return len(replicas) // 2 + 1


def status(image: MetadataImage, topic: TopicState, index: int) -> ModeStatus:
    state = topic.partitions[index]
    desired = desired_mode(image, topic, index)
    return ModeStatus(state.mode, desired, _reason(image, state, desired))


def _reason(image: MetadataImage, state: PartitionState, desired: ReplicationMode) -> str:
    needed = majority(state.replicas)
    match state.mode:
        case ReplicationMode.ISR if desired == RAFT:
            return _reason_not_to_enter(image, state)
        case ReplicationMode.ENTERING if state.leader == NO_NODE:
            return "the partition has no leader"
        case ReplicationMode.ENTERING if len(state.isr) < needed:
            return f"{len(state.isr)} replicas are in sync, but raft requires {needed}"
        case ReplicationMode.ENTERING:
            waits = f"replicas {list(state.isr)} to flush their logs"
            return f"leader {state.leader} waits for {waits}"
        case ReplicationMode.RAFT if desired == ISR and is_reassigning(state):
            return "the partition is being reassigned"
        case ReplicationMode.LEAVING if state.leader == NO_NODE:
            return f"{needed} of the replicas {list(state.replicas)} must report their log end"
        case ReplicationMode.LEAVING:
            return f"leader {state.leader} waits for enough replicas in sync, ISR {list(state.isr)}"
        case _:
            return ""


def _reason_not_to_enter(image: MetadataImage, state: PartitionState) -> str:
    needed = majority(state.replicas)
    if not is_enabled(image):
        return f"the feature {REPLICATION_VERSION} is at level 0: upgrade it to 1"
    if is_reassigning(state):
        return "the partition is being reassigned"
    if state.leader == NO_NODE:
        return "the partition has no leader"
    if state.leader_recovery != LeaderRecovery.RECOVERED:
        return f"leader {state.leader} has not recovered from an unclean election yet"
    if len(state.isr) < needed:
        return f"{len(state.isr)} replicas are in sync, but raft requires {needed}"
    return ""


# ── steps of the controller ──────────────────────────────────────────────────────────────────


def next_step(image: MetadataImage, topic: TopicState, index: int) -> PartitionRecord | None:
    """The next record for a partition that is not in its desired mode; None to wait (`status`)."""
    state = topic.partitions[index]
    desired = desired_mode(image, topic, index)
    if state.mode == ISR and desired == RAFT:
        if _reason_not_to_enter(image, state):
            return None
        # A new epoch, because records fetched in earlier ones were not fsynced first.
        return _build_record(
            topic, index, state, mode=ENTERING, leader_epoch=state.leader_epoch + 1
        )
    if state.mode == ENTERING and desired == ISR:
        return _build_record(topic, index, state, mode=ISR)
    if state.mode == RAFT and desired == ISR and not is_reassigning(state):
        return _leave(topic, index, state, epoch=state.leader_epoch + 1)
    return None


def _leave(topic: TopicState, index: int, state: PartitionState, *, epoch: int) -> PartitionRecord:
    return _build_record(topic, index, state, mode=LEAVING, leader=NO_NODE, leader_epoch=epoch)


def collect_again(topic: TopicState, index: int) -> PartitionRecord:
    """Collects the log ends again, because the appointed leader was fenced, shut down or restarted
    without its state. Everything that it may have appended is discarded."""
    state = topic.partitions[index]
    assert state.mode == LEAVING, state
    return _leave(topic, index, state, epoch=state.leader_epoch + 1)


# ── requests of a leader ─────────────────────────────────────────────────────────────────────


def enter_raft(
    image: MetadataImage,
    topic: TopicState,
    index: int,
    *,
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: tuple[int, ...],
) -> PartitionRecord:
    """The leader reports that every in-sync replica has flushed its log beyond the first batch of
    the leader epoch. Raises Rejected."""
    state = topic.partitions[index]
    if state.mode != ENTERING:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"The partition is in mode {state.mode.text}.")
    if leader_epoch != state.leader_epoch or leader != state.leader:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"The leader is broker {state.leader}.")
    if partition_epoch != state.partition_epoch or set(isr) != set(state.isr):
        raise Rejected(ErrorCode.INVALID_UPDATE_VERSION, "The in-sync replicas have changed.")
    if why := _reason_not_to_enter(image, state):
        raise Rejected(ErrorCode.OPERATION_NOT_ATTEMPTED, why)
    return _build_record(
        topic, index, state, mode=RAFT, life=state.leader_epoch, elr=(), last_known_elr=()
    )


def report_leader(
    topic: TopicState,
    index: int,
    *,
    leader: int,
    leader_epoch: int,
    life: int,
    in_sync: tuple[int, ...],
    voters: tuple[int, ...],
) -> PartitionRecord | None:
    """Records a leader that the voters elected, or changes of its in-sync replicas and voters. The
    voters complete a reassignment. Returns None without changes. Raises Rejected."""
    state = topic.partitions[index]
    if state.mode != RAFT or life != state.life:
        raise Rejected(
            ErrorCode.FENCED_LEADER_EPOCH, f"The partition is in mode {state.mode.text}."
        )
    if leader_epoch < state.leader_epoch:
        raise Rejected(
            ErrorCode.FENCED_LEADER_EPOCH, f"Broker {state.leader} leads in a later epoch."
        )
    if leader not in state.replicas or (
        leader_epoch == state.leader_epoch and leader != state.leader
    ):
        raise Rejected(ErrorCode.INVALID_REQUEST, f"Broker {leader} cannot lead this partition.")
    after = state._replace(leader=leader, leader_epoch=leader_epoch)
    target = tuple(member for member in state.replicas if member not in state.removing_replicas)
    if is_reassigning(state) and set(voters) == set(target):
        kept = dict(zip(state.replicas, state.directories, strict=True))
        after = after._replace(
            replicas=target,
            directories=tuple(kept[replica] for replica in target),
            adding_replicas=(),
            removing_replicas=(),
        )
    after = after._replace(isr=tuple(member for member in after.replicas if member in in_sync))
    if after == state:
        return None
    return _record(topic, index, after)


# ── reports of the replicas ──────────────────────────────────────────────────────────────────


def on_tail(
    image: MetadataImage,
    topic: TopicState,
    index: int,
    collection: Collection,
    *,
    replica: int,
    tail: LogEndPosition,
    min_isr: int,
) -> PartitionRecord | None:
    """A replica has fsynced its log, promised to follow the controller's epoch, and reports where
    its log ends. Returns None while more replicas are needed."""
    state = topic.partitions[index]
    if not _is_collecting(state, collection) or replica not in state.replicas:
        return None
    collection.log_ends[replica] = tail
    # Offline replicas cannot be appointed, and any majority of the others is sufficient.
    tails: Mapping[int, LogEndPosition] = {
        member: collection.log_ends[member]
        for member in state.replicas
        if member in collection.log_ends and _is_active(image, member)
    }
    if len(tails) < majority(state.replicas):
        return None
    highest = max(tails.values())
    isr = tuple(member for member, tail in tails.items() if tail == highest)
    enough = len(isr) >= min(min_isr, len(state.replicas))
    return _build_record(
        topic,
        index,
        state,
        mode=ISR if enough else LEAVING,
        leader=isr[0],
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        leader_recovery=LeaderRecovery.RECOVERED,
    )


def on_fenced(
    topic: TopicState, index: int, collection: Collection, *, epoch: int
) -> PartitionRecord | None:
    """A replica is already in `epoch`, which is not below the epoch that should end the raft life:
    starts a higher one. Reports of the previous one are void."""
    state = topic.partitions[index]
    if not _is_collecting(state, collection) or epoch < collection.epoch:
        return None
    return _leave(topic, index, state, epoch=epoch + 1)


def _is_collecting(state: PartitionState, collection: Collection) -> bool:
    return (
        state.mode == LEAVING and state.leader == NO_NODE and state.leader_epoch == collection.epoch
    )


def _is_active(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def _build_record(
    topic: TopicState, index: int, state: PartitionState, **changes: object
) -> PartitionRecord:
    return _record(topic, index, state._replace(**changes))  # type: ignore[arg-type]


def _record(topic: TopicState, index: int, state: PartitionState) -> PartitionRecord:
    return partition_record(topic, index, state._replace(partition_epoch=state.partition_epoch + 1))
