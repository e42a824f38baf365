"""Which features this release has, and the decision to raise or lower their levels."""

from collections.abc import Iterator
from typing import Final

from lograft.metadata.config_effects import uniform_min_isr
from lograft.metadata.errors import Refused
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    REPLICATION_VERSION,
    TRANSACTION_VERSION,
    Outcome,
    VersionRange,
)
from lograft.model.errors import ErrorCode
from lograft.model.feature_levels import NEEDS_METADATA_VERSION
from lograft.wire.message import Message
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from lograft.wire.records.clear_elr_record import ClearElrRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord

#: metadata.version 30 is Kafka 4.3-IV0. A feature gets its row when it is built: clients choose
#: what they do by what is finalised.
SUPPORTED: Final[dict[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(7, 30),
    KRAFT_VERSION: VersionRange(0, 1),
    ELR_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    REPLICATION_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
}
LATEST_METADATA_VERSION: Final = SUPPORTED[METADATA_VERSION].max_version

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


def effective_levels(image: MetadataImage, *, kraft_version: int = 0) -> dict[str, int]:
    """The finalised features as far as this release has them: what clients are told. (A log that
    Apache Kafka wrote may finalise more; those stay in the log and do nothing here.)"""
    levels = {name: level for name, level in image.features.items() if name in SUPPORTED}
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return levels


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    *,
    version: int,
    min_insync_replicas: int = 1,
) -> Outcome[UpdateFeaturesResponse]:
    """All or nothing: one error answers for the whole request. `min_insync_replicas`: of the
    controller's file, for a log that says nothing about it."""
    records: list[Message] = []
    results = []
    refusal: Refused | None = None
    for update in request.feature_updates:
        try:
            changed = _update(image, update, version=version)
            records += changed
            if changed and update.feature == ELR_VERSION:
                records += _elr_changes(image, changed[0].feature_level, min_insync_replicas)
        except Refused as error:
            refusal = refusal or error
        results.append(UpdatableFeatureResult(feature=update.feature, error_message=None))
    response = UpdateFeaturesResponse(error_message=None, results=results)
    if refusal is not None:
        records.clear()
        response.error_code, response.error_message = refusal.code, refusal.message
        results.clear()
    if request.validate_only:
        records.clear()
    return Outcome(tuple(records), response)


def _update(
    image: MetadataImage, update: FeatureUpdateKey, *, version: int
) -> list[FeatureLevelRecord]:
    name, level = update.feature, update.max_version_level
    supported = SUPPORTED.get(name)
    if supported is None:
        raise _refused(f"The feature {name} is not known here")
    if level < 0 or (level and level not in supported) or (not level and name == METADATA_VERSION):
        raise _refused(
            f"{name} takes levels {supported.min_version} to {supported.max_version}, not {level}"
        )
    for broker in image.brokers.values():
        versions = broker.features.get(name)
        if level and (versions is None or level not in versions):
            raise _refused(f"Broker {broker.broker_id} does not take {name} {level}")
    if name == KRAFT_VERSION:
        raise _refused("kraft.version is set when the quorum is formatted and cannot change yet")
    current = image.features.get(name, 0)
    if version == 0:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    else:
        kind = update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(f"{kind} is no way to change a feature: 1 raises, 2 and 3 lower it")
    if level < current and kind == UPGRADE:
        raise _refused(f"{name} is at {current}; {level} would lower it: ask for a downgrade")
    if level > current and kind != UPGRADE:
        raise _refused(f"{name} is at {current}; {level} would raise it: ask for an upgrade")
    if name == METADATA_VERSION and level < current and kind != UNSAFE_DOWNGRADE:
        raise _refused("Lowering metadata.version may lose metadata: ask for an unsafe downgrade")
    needed = NEEDS_METADATA_VERSION.get((name, level), 0)
    if image.metadata_version < needed:
        raise _refused(f"{name} {level} needs metadata.version {needed}")
    if level == current:
        return []
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _elr_changes(image: MetadataImage, level: int, min_insync_replicas: int) -> Iterator[Message]:
    """With ELR: one minimum for all. Without: nobody is eligible, so nobody may depend on it."""
    if level:
        yield from uniform_min_isr(image, min_insync_replicas)
        return
    for topic_id, index in image.leaderless:
        topic = image.topics[topic_id]
        if not topic.partitions[index].isr:
            raise _refused(
                f"Partition {topic.name}-{index} has no replica in sync and would forget which"
                " ones hold its records: start their brokers first"
            )
    yield ClearElrRecord()


def _refused(problem: str) -> Refused:
    return Refused(ErrorCode.invalid_update_version, f"{problem}.")
