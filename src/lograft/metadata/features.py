"""The features that this release supports, and the decision to upgrade or downgrade them."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from lograft.metadata.config_effects import uniform_min_isr
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    REPLICATION_VERSION,
    TRANSACTION_VERSION,
    ControllerResult,
    VersionRange,
)
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.feature_levels import METADATA_CHANGES, REQUIRED_METADATA_VERSIONS
from lograft.wire.message import Message
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from lograft.wire.records.clear_elr_record import ClearElrRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord

#: metadata.version 30 is Kafka 4.3-IV0. Features are added only once they are implemented, because
#: clients act on the finalized levels.
SUPPORTED: Final[dict[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(7, 30),
    KRAFT_VERSION: VersionRange(0, 1),
    ELR_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    REPLICATION_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
}
#: Features of Kafka 4.3 that Lograft does not implement. Their levels are stored for Kafka, but not
#: returned to clients as finalized.
STORED: Final[dict[str, VersionRange]] = {
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
}
LATEST_METADATA_VERSION: Final = SUPPORTED[METADATA_VERSION].max_version

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


class Controller(NamedTuple):
    """The state of the active controller, beside the image, that decisions depend on."""

    #: The level of kraft.version, which is stored in the quorum's own log.
    kraft_version: int = 0
    #: The value in the properties file, used unless the log has another one.
    min_insync_replicas: int = 1


def effective_levels(image: MetadataImage, *, kraft_version: int = 0) -> dict[str, int]:
    """The finalized features that this release supports, as returned to clients. (Further features
    finalized by Apache Kafka stay in the log without effect here.)"""
    levels = {name: level for name, level in image.features.items() if name in SUPPORTED}
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return levels


def raises_kraft_version(request: UpdateFeaturesRequest, current: int) -> bool:
    return any(
        update.feature == KRAFT_VERSION and update.max_version_level > current
        for update in request.feature_updates
    )


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    *,
    version: int,
    controller: Controller,
) -> ControllerResult[UpdateFeaturesResponse]:
    """All updates or none: one error applies to the whole request. A new kraft.version has no
    record here, because the quorum writes it before these records (api/update_features.py)."""
    updates = {update.feature: update for update in request.feature_updates}
    proposed = image.features | {name: update.max_version_level for name, update in updates.items()}
    response = UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=name, error_message=None) for name in updates],
    )
    records: list[Message] = []
    try:
        for name, update in updates.items():
            change = _Change(name, update.max_version_level, _kind_of(update, version))
            level = _checked_level(image, change, proposed, controller)
            if level is not None:
                records.append(FeatureLevelRecord(name=name, feature_level=level))
                if name == ELR_VERSION:
                    records += _elr_changes(image, level, controller.min_insync_replicas)
    except Rejected as rejection:
        response.error_code, response.error_message = rejection.code, rejection.message
        response.results.clear()
        return ControllerResult((), response)
    return ControllerResult(() if request.validate_only else tuple(records), response)


class _Change(NamedTuple):
    feature: str
    level: int
    #: UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, or any other number in an invalid request.
    kind: int


def _kind_of(update: FeatureUpdateKey, version: int) -> int:
    """Version 0 can only upgrade: Kafka ignores its `allow_downgrade`."""
    return UPGRADE if version == 0 else update.upgrade_type


def _checked_level(
    image: MetadataImage, change: _Change, proposed: Mapping[str, int], controller: Controller
) -> int | None:
    """The level to store, or None if no record is needed. Checks in the same order as Kafka."""
    name, level, kind = change
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _rejection(f"invalid upgrade type {kind}: use 1 (upgrade), 2 (safe) or 3 (unsafe)")
    if level < 0:
        raise _rejection(f"{name} cannot have the negative level {level}")
    _check_support(image, name, level)
    is_kraft_version = name == KRAFT_VERSION
    current = controller.kraft_version if is_kraft_version else image.features.get(name, 0)
    if level < current and kind == UPGRADE:
        raise _rejection(
            f"{name} is at level {current}: lowering it to {level} requires a safe or unsafe"
            " downgrade"
        )
    if level > current and kind != UPGRADE:
        raise _rejection(f"{name} is at level {current}: raising it to {level} requires an upgrade")
    if level == current:
        return None
    if is_kraft_version:
        if level < current:
            raise _rejection("kraft.version cannot be lowered")
        return None
    if name == METADATA_VERSION:
        if level < current:
            _check_metadata_downgrade(current, level, kind)
        return level
    needed = REQUIRED_METADATA_VERSIONS.get((name, level), 0)
    if proposed.get(METADATA_VERSION, 0) < needed:
        raise _rejection(f"{name} {level} requires metadata.version {needed}")
    return level


def _check_support(image: MetadataImage, name: str, level: int) -> None:
    """Checks that this controller and all registered brokers and controllers support the level."""
    known = SUPPORTED.get(name) or STORED.get(name)
    if known is None:
        raise _rejection(f"The feature {name} is unknown")
    if level not in known:
        raise _rejection(
            f"{name} supports levels {known.min_version} to {known.max_version}, not {level}"
        )
    if level == 0:
        return
    nodes: list[tuple[str, Mapping[str, VersionRange]]] = [
        *((f"Broker {node.broker_id}", node.features) for node in image.brokers.values()),
        *(
            (f"Controller {node.controller_id}", node.features)
            for node in image.controllers.values()
        ),
    ]
    for node, features in nodes:
        if name in STORED and REPLICATION_VERSION in features:
            continue  # A Lograft node, where the feature has no effect.
        versions = features.get(name)
        if versions is None or level not in versions:
            raise _rejection(f"{node} does not support {name} {level}")


def _check_metadata_downgrade(current: int, level: int, kind: int) -> None:
    """Kafka lowers metadata.version only if no version in between has changed the records."""
    changed = [version for version in METADATA_CHANGES if level < version <= current]
    if not changed:
        return
    raise _rejection(
        f"metadata.version cannot be lowered from {current} to {level}: "
        + (
            "unsafe downgrades are not supported"
            if kind == UNSAFE_DOWNGRADE
            else f"version {changed[0]} changed the metadata records, which might be lost"
        )
    )


def _elr_changes(image: MetadataImage, level: int, min_insync_replicas: int) -> Iterator[Message]:
    """With ELR, sets one minimum for all brokers. Without it, clears all eligible replicas, which
    no partition may depend on."""
    if level:
        yield from uniform_min_isr(image, min_insync_replicas)
        return
    for topic_id, index in image.leaderless:
        topic = image.topics[topic_id]
        if not topic.partitions[index].isr:
            raise _rejection(
                f"Partition {topic.name}-{index} has no replica in sync. Disabling the feature"
                " would discard the information about which replicas hold its records: start their"
                " brokers first"
            )
    yield ClearElrRecord()


def _rejection(problem: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_UPDATE_VERSION, f"{problem}.")
