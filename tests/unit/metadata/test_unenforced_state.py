from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType
from lograft.metadata.unenforced_state import describe_unenforced
from lograft.model.types import Epoch, Offset
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.delegation_token_record import DelegationTokenRecord


def image_of(**settings: str) -> MetadataImage:
    """Topics with remote.storage.enable."""
    image = MetadataImage()
    records = [
        ConfigRecord(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            name="remote.storage.enable",
            value=value,
        )
        for topic, value in settings.items()
    ]
    image.apply(records, offset=Offset(len(records) - 1), epoch=Epoch(1))
    return image


def test_topics_of_kafka_with_tiered_storage_are_named() -> None:
    assert describe_unenforced(image_of(a="false", b="true", c="true")) == {
        "remote.storage.enable": "remote.storage.enable is set for 2 topics (b, c). Not supported"
        " by Lograft: tiered storage is not implemented yet, so segments stay on the broker's own"
        " disks."
    }


def test_many_topics_are_counted() -> None:
    (sentence,) = describe_unenforced(image_of(**{f"t{n}": "true" for n in range(7)})).values()
    assert "for 7 topics (t0, t1, t2, t3, t4, …)" in sentence


def test_topics_without_tiered_storage_need_no_sentence() -> None:
    assert describe_unenforced(image_of(a="false")) == {}


def test_delegation_tokens_without_a_key() -> None:
    image = MetadataImage()
    image.replay(DelegationTokenRecord(token_id="x"))
    assert list(describe_unenforced(image)) == ["tokens"]
    assert describe_unenforced(image, uses_tokens=True) == {}
