"""What a controller writes first when it becomes active."""

from collections.abc import Iterable

from lograft.metadata.features import LATEST_METADATA_VERSION, SUPPORTED
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import METADATA_VERSION
from lograft.wire.message import Message
from lograft.wire.records.abort_transaction_record import AbortTransactionRecord
from lograft.wire.records.begin_transaction_record import BeginTransactionRecord
from lograft.wire.records.end_transaction_record import EndTransactionRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord


def activation_records(image: MetadataImage, bootstrap: Iterable[Message]) -> tuple[Message, ...]:
    """`bootstrap`: what the storage was formatted with; it counts while the log is empty."""
    records: list[Message] = []
    if image.in_transaction:
        records.append(AbortTransactionRecord(reason="its controller went"))
    if image.is_empty:
        records.append(BeginTransactionRecord(name="Bootstrap records"))
        records += bootstrap_records(bootstrap)
        records.append(EndTransactionRecord())
    return tuple(records)


def bootstrap_records(given: Iterable[Message]) -> list[Message]:
    """The given records without the features that this release does not have; metadata.version
    comes first, and the newest is taken where none is named."""
    version = LATEST_METADATA_VERSION
    rest: list[Message] = []
    for record in given:
        if not isinstance(record, FeatureLevelRecord):
            rest.append(record)
        elif record.name == METADATA_VERSION:
            version = record.feature_level
        elif record.name in SUPPORTED and record.feature_level in SUPPORTED[record.name]:
            rest.append(record)
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=version), *rest]
