"""Every record class against bytes that Apache Kafka 4.3.1's own classes wrote.

This file and tools/RewriteRecords.java generate the golden file:
    python tests/unit/wire/test_records.py | java -cp "LIBS/*" tools/RewriteRecords.java
"""

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import lograft.wire.records
from lograft.wire import codec
from lograft.wire.message import LATEST, Message
from lograft.wire.records.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from tests.properties.random_messages import RandomMessages

GOLDEN = Path(__file__).parents[2] / "golden" / "wire" / "records.txt"
SEEDS = {"sparse": 0.2, "full": 0.9}


def record_classes() -> dict[str, type[Message]]:
    found = {}
    for module in iter_modules(lograft.wire.records.__path__):
        for name, kind in vars(import_module(f"lograft.wire.records.{module.name}")).items():
            top = isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
            if top and kind.VERSIONS[1] != LATEST:
                found[name] = kind
    return found


def message_of(kind: type[Message], version: int, seed: str) -> Message:
    # Kafka keeps unknown tags, so Lograft's own can be among them.
    messages = RandomMessages(
        f"{kind.__name__} {version} {seed}", fullness=SEEDS[seed], own_fields=True
    )
    return messages.build(kind, version)


def test_records_are_encoded_as_by_kafka() -> None:
    classes = record_classes()
    seen = set()
    for line in GOLDEN.read_text().splitlines():
        name, version_text, seed, golden = line.split(" ")
        kind, version = classes[name], int(version_text)
        message = message_of(kind, version, seed)
        data = bytes.fromhex(golden)
        assert codec.write(message, version) == data, line
        assert codec.read_all(kind, version, data) == message, line
        seen.add((name, version))
    expected = {
        (name, version)
        for name, kind in classes.items()
        for version in range(kind.VERSIONS[0], kind.VERSIONS[1] + 1)
    }
    assert seen == expected
    assert len(classes) >= 78


def test_nullable_tagged_struct_is_encoded_as_null() -> None:
    """As in Kafka: a member of the consumer protocol has no classic metadata, but a null. Kafka
    treats a missing tag as the default struct, a classic member."""
    member = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    data = codec.write(member, 0)
    assert data.endswith(bytes.fromhex("01000100"))
    assert codec.read_all(ConsumerGroupMemberMetadataValue, 0, data) == member
    blank = codec.read_all(ConsumerGroupMemberMetadataValue, 0, data[:-4] + b"\0")
    assert blank.classic_member_metadata == ClassicMemberMetadata()


if __name__ == "__main__":
    for name, kind in sorted(record_classes().items()):
        for version in range(kind.VERSIONS[0], kind.VERSIONS[1] + 1):
            for seed in SEEDS:
                body = codec.write(message_of(kind, version, seed), version).hex()
                sys.stdout.write(f"{name} {version} {seed} {body}\n")
