"""Record batches as records for the program."""

from lograft.client.consuming.fetched import Batch, Slice
from lograft.client.errors import SerializationFailed
from lograft.client.serializers import Deserializer
from lograft.client.types import ConsumerRecord
from lograft.wire.batches import parse_records, unpack_records


def records_of(fetched: Slice, batch: Batch, bytes_max: int) -> list[ConsumerRecord]:
    """The records of one batch that the reader is to see. Raises MalformedBatch."""
    header = batch.header
    topic, partition, first_offset = fetched.topic, fetched.partition, fetched.first_offset
    view = memoryview(fetched.data)[batch.position : batch.position + header.size_bytes]
    epoch = header.leader_epoch
    kind = int(header.timestamp_type_log_append)
    return [
        ConsumerRecord(topic, partition, offset, timestamp, key, value, headers, epoch, kind)
        for offset, timestamp, key, value, headers in parse_records(
            unpack_records(view, bytes_max=bytes_max), header
        )
        if offset >= first_offset
    ]


class Decoders:
    """What makes a program's values of bytes; None: bytes stay bytes."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value
        self.are_plain = key is None and value is None

    def decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """Raises SerializationFailed."""
        key, value = record.key, record.value
        what = "key"
        try:
            if self._key is not None and key is not None:
                key = self._key(record.topic, key)
            what = "value"
            if self._value is not None and value is not None:
                value = self._value(record.topic, value)
        except Exception as error:
            raise SerializationFailed(
                f"the {what} of {record.topic}-{record.partition} at offset {record.offset} cannot"
                f" be deserialized: {error}; seek to {record.offset + 1} to skip it"
            ) from error
        return record._replace(key=key, value=value)
