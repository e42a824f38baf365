"""The records that a controller writes first when it becomes active."""

from collections.abc import Iterable

from lograft.metadata.config_effects import uniform_min_isr
from lograft.metadata.features import LATEST_METADATA_VERSION, SUPPORTED
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ELR_VERSION, METADATA_VERSION
from lograft.wire.message import Message
from lograft.wire.records.abort_transaction_record import AbortTransactionRecord
from lograft.wire.records.begin_transaction_record import BeginTransactionRecord
from lograft.wire.records.end_transaction_record import EndTransactionRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord


def activation_records(
    image: MetadataImage, bootstrap: Iterable[Message], *, min_insync_replicas: int = 1
) -> tuple[Message, ...]:
    """`bootstrap` are the records from formatting the storage, used while the log is empty.
    `min_insync_replicas` is the value in the controller's properties file, used unless the log has
    another one."""
    records: list[Message] = []
    if image.in_transaction:
        records.append(AbortTransactionRecord(reason="the controller failed over"))
    if image.is_empty:
        records.append(BeginTransactionRecord(name="Bootstrap records"))
        first = bootstrap_records(bootstrap)
        records += first
        if any(isinstance(r, FeatureLevelRecord) and r.name == ELR_VERSION for r in first):
            records += uniform_min_isr(_replay(first), min_insync_replicas)
        records.append(EndTransactionRecord())
    return tuple(records)


def _replay(records: Iterable[Message]) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def bootstrap_records(formatted: Iterable[Message]) -> list[Message]:
    """The given records without features that this release does not support. metadata.version comes
    first; it defaults to the latest version."""
    version = LATEST_METADATA_VERSION
    others: list[Message] = []
    for record in formatted:
        if not isinstance(record, FeatureLevelRecord):
            others.append(record)
        elif record.name == METADATA_VERSION:
            version = record.feature_level
        elif record.name in SUPPORTED and record.feature_level in SUPPORTED[record.name]:
            others.append(record)
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=version), *others]
