"""Selects the version of each metadata record: the lowest one that contains all of its fields.

A record therefore never requires a newer reader than necessary. Kafka selects the version by
metadata.version, with the same result wherever a field is in use.
"""

from collections.abc import Callable
from typing import Any, Final

from lograft.wire.message import Message
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord


def _register_broker(record: RegisterBrokerRecord) -> int:
    if record.cordoned_log_dirs is not None:
        return 4
    if record.log_dirs:
        return 3
    return 2 if record.is_migrating_zk_broker else 1


def _registration_change(record: BrokerRegistrationChangeRecord) -> int:
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def _partition(record: PartitionRecord) -> int:
    if record.eligible_leader_replicas is not None or record.last_known_elr is not None:
        return 2
    return 1 if record.directories else 0


def _partition_change(record: PartitionChangeRecord) -> int:
    if record.eligible_leader_replicas is not None or record.last_known_elr is not None:
        return 2
    return 1 if record.directories else 0


_CHOICES: Final[dict[type[Message], Callable[[Any], int]]] = {
    RegisterBrokerRecord: _register_broker,
    BrokerRegistrationChangeRecord: _registration_change,
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_change,
}


def version_of(record: Message) -> int:
    choose = _CHOICES.get(type(record))
    return 0 if choose is None else choose(record)
