"""The controller's part of the live switch between ISR and Raft.

    isr ──── enter ────▶ entering ──── the leader's evidence ────▶ raft
     ▲ ◀─── rollback ────┘                                          │ leave
     └─── enough in sync ─── leaving, led ◀── appoint ── leaving ◀──┘

The setting is the wish, the state is in the partition's record, and every step is one full
PartitionRecord: a PartitionChangeRecord can only add one to the leader epoch. All functions are
decisions on the image; what they refuse or wait for is said in a sentence (`ModeStatus.reason`).

Why it is safe: `raft` is written only when every in-sync replica, and so a majority, has all that
was ever acknowledged *and a batch of the entering epoch* on disk, and as long as nothing about the
ISR moved since the leader looked. `leaving` is an election that the controller wins: a majority
has promised to elect nobody any more before anyone is appointed, and has fsynced its log before it
said how long that is. The appointed leader acknowledges nothing before as many replicas as
min.insync.replicas hold its log.
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
    wish: ReplicationMode
    #: What a switch waits for; empty: none is under way, or the next step is the controller's.
    reason: str


class LogTail(NamedTuple):
    """Of two logs the greater one has everything that a majority ever committed."""

    last_epoch: int
    end_offset: int


@dataclass(slots=True)
class Collection:
    """The answers to one `leaving` epoch. Only in the controller's memory: a new one asks anew."""

    epoch: int
    answers: dict[int, LogTail] = field(default_factory=dict)


def wished_mode(image: MetadataImage, topic: TopicState, index: int) -> ReplicationMode:
    """What the topic's settings say; they were checked when they were set."""
    settings = image.config_of(ResourceType.TOPIC, topic.name)
    for word in settings.get(MODE_OF_PARTITIONS, "").split(","):
        partition, _, mode = word.strip().partition(":")
        if partition == str(index):
            return ReplicationMode[mode.upper()]
    return ReplicationMode[settings.get(MODE, ISR.text).upper()]


def check_modes(image: MetadataImage, settings: Mapping[str, str]) -> list[FeatureLevelRecord]:
    """Whether a topic may have these settings. Raises Rejected. The first one in raft mode brings
    the record that enables it: a cluster that never uses it stays one that Apache Kafka reads."""
    words = (settings.get(MODE, ""), *settings.get(MODE_OF_PARTITIONS, "").split(","))
    if is_enabled(image) or not any(word.strip().endswith(RAFT.text) for word in words):
        return []
    registered = [(each.broker_id, each.features) for each in image.brokers.values()]
    registered += [(each.controller_id, each.features) for each in image.controllers.values()]
    for node_id, features in registered:
        if REPLICATION_VERSION not in features or 1 not in features[REPLICATION_VERSION]:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"Replication by raft is not enabled: node {node_id} does not take"
                f" {REPLICATION_VERSION} 1.",
            )
    return [FeatureLevelRecord(name=REPLICATION_VERSION, feature_level=1)]


def is_enabled(image: MetadataImage) -> bool:
    return image.features.get(REPLICATION_VERSION, 0) >= 1


def majority(replicas: tuple[int, ...]) -> int:
    return len(replicas) // 2 + 1


def status(image: MetadataImage, topic: TopicState, index: int) -> ModeStatus:
    state = topic.partitions[index]
    wish = wished_mode(image, topic, index)
    return ModeStatus(state.mode, wish, _reason(image, state, wish))


def _reason(image: MetadataImage, state: PartitionState, wish: ReplicationMode) -> str:
    needed = majority(state.replicas)
    match state.mode:
        case ReplicationMode.ISR if wish == RAFT:
            return _why_not_enter(image, state)
        case ReplicationMode.ENTERING if state.leader == NO_NODE:
            return "nobody leads the partition"
        case ReplicationMode.ENTERING if len(state.isr) < needed:
            return f"{len(state.isr)} replicas are in sync, raft needs {needed}"
        case ReplicationMode.ENTERING:
            waits = f"replicas {list(state.isr)} to have their logs on disk"
            return f"leader {state.leader} waits for {waits}"
        case ReplicationMode.RAFT if wish == ISR and is_reassigning(state):
            return "the partition is being reassigned"
        case ReplicationMode.LEAVING if state.leader == NO_NODE:
            return (
                f"{needed} of the replicas {list(state.replicas)} must say how long their logs are"
            )
        case ReplicationMode.LEAVING:
            return f"leader {state.leader} waits for enough replicas in sync: now {list(state.isr)}"
        case _:
            return ""


def _why_not_enter(image: MetadataImage, state: PartitionState) -> str:
    needed = majority(state.replicas)
    if not is_enabled(image):
        return f"the feature {REPLICATION_VERSION} is at 0: raise it to 1"
    if is_reassigning(state):
        return "the partition is being reassigned"
    if state.leader == NO_NODE:
        return "nobody leads the partition"
    if state.leader_recovery != LeaderRecovery.RECOVERED:
        return f"leader {state.leader} has not recovered from an unclean election yet"
    if len(state.isr) < needed:
        return f"{len(state.isr)} replicas are in sync, raft needs {needed}"
    return ""


# ── what the controller does by itself ───────────────────────────────────────────────────────


def next_step(image: MetadataImage, topic: TopicState, index: int) -> PartitionRecord | None:
    """What to write for a partition whose state is not its wish; None: wait (see `status`)."""
    state = topic.partitions[index]
    wish = wished_mode(image, topic, index)
    if state.mode == ISR and wish == RAFT:
        if _why_not_enter(image, state):
            return None
        # A new epoch: what was fetched before it was not fsynced first.
        return _written(topic, index, state, mode=ENTERING, leader_epoch=state.leader_epoch + 1)
    if state.mode == ENTERING and wish == ISR:
        return _written(topic, index, state, mode=ISR)
    if state.mode == RAFT and wish == ISR and not is_reassigning(state):
        return _leave(topic, index, state, epoch=state.leader_epoch + 1)
    return None


def _leave(topic: TopicState, index: int, state: PartitionState, *, epoch: int) -> PartitionRecord:
    return _written(topic, index, state, mode=LEAVING, leader=NO_NODE, leader_epoch=epoch)


def collect_again(topic: TopicState, index: int) -> PartitionRecord:
    """The appointed leader is fenced, shuts down or came back without its memory, and with it goes
    what it may have appended: all are asked again."""
    state = topic.partitions[index]
    assert state.mode == LEAVING, state
    return _leave(topic, index, state, epoch=state.leader_epoch + 1)


# ── what a leader asks for ───────────────────────────────────────────────────────────────────


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
    """The leader says that every in-sync replica has its log on disk, past the batch that it wrote
    when it began to lead. Raises Rejected."""
    state = topic.partitions[index]
    if state.mode != ENTERING:
        raise Rejected(ErrorCode.INVALID_REQUEST, f"The partition is in mode {state.mode.text}.")
    if leader_epoch != state.leader_epoch or leader != state.leader:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"{state.leader} leads now.")
    if partition_epoch != state.partition_epoch or set(isr) != set(state.isr):
        raise Rejected(ErrorCode.INVALID_UPDATE_VERSION, "The in-sync replicas have changed.")
    if why := _why_not_enter(image, state):
        raise Rejected(ErrorCode.OPERATION_NOT_ATTEMPTED, why)
    return _written(
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
    """A leader that the voters elected, or its news: who keeps up, who votes. None: nothing new.
    Its voters complete a reassignment. Raises Rejected."""
    state = topic.partitions[index]
    if state.mode != RAFT or life != state.life:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"The partition is in {state.mode.text}.")
    if leader_epoch < state.leader_epoch:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"{state.leader} leads a later epoch.")
    if leader not in state.replicas or (
        leader_epoch == state.leader_epoch and leader != state.leader
    ):
        raise Rejected(ErrorCode.INVALID_REQUEST, f"{leader} cannot lead this partition.")
    after = state._replace(leader=leader, leader_epoch=leader_epoch)
    target = tuple(each for each in state.replicas if each not in state.removing_replicas)
    if is_reassigning(state) and set(voters) == set(target):
        kept = dict(zip(state.replicas, state.directories, strict=True))
        after = after._replace(
            replicas=target,
            directories=tuple(kept[replica] for replica in target),
            adding_replicas=(),
            removing_replicas=(),
        )
    after = after._replace(isr=tuple(each for each in after.replicas if each in in_sync))
    if after == state:
        return None
    return _record(topic, index, after)


# ── what the replicas answer ─────────────────────────────────────────────────────────────────


def on_tail(
    image: MetadataImage,
    topic: TopicState,
    index: int,
    collection: Collection,
    *,
    replica: int,
    tail: LogTail,
    min_isr: int,
) -> PartitionRecord | None:
    """A replica has fsynced its log, bound itself to the controller's epoch, and says where its
    log ends. None: more of them are needed."""
    state = topic.partitions[index]
    if not _is_collecting(state, collection) or replica not in state.replicas:
        return None
    collection.answers[replica] = tail
    # A replica that is gone cannot be appointed, and a majority of the others is as good as any.
    tails: Mapping[int, LogTail] = {
        each: collection.answers[each]
        for each in state.replicas
        if each in collection.answers and _is_active(image, each)
    }
    if len(tails) < majority(state.replicas):
        return None
    highest = max(tails.values())
    isr = tuple(each for each, its in tails.items() if its == highest)
    enough = len(isr) >= min(min_isr, len(state.replicas))
    return _written(
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
    """A replica is in `epoch`, which is not below the one that the life shall end with: a higher
    one is needed. The answers to the old one are void."""
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


def _written(
    topic: TopicState, index: int, state: PartitionState, **changes: object
) -> PartitionRecord:
    return _record(topic, index, state._replace(**changes))  # type: ignore[arg-type]


def _record(topic: TopicState, index: int, state: PartitionState) -> PartitionRecord:
    return partition_record(topic, index, state._replace(partition_epoch=state.partition_epoch + 1))
