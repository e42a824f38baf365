"""Images with brokers and topics, and the settings that decisions use."""

from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

import pytest

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ELR_VERSION, ControllerResult
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.types import Offset
from lograft.wire.message import Message
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.register_broker_record import BrokerFeature, RegisterBrokerRecord


class Applies(Protocol):
    def __call__(self, image: MetadataImage, records: Iterable[Message]) -> None: ...


@pytest.fixture
def new_id() -> Callable[[], UUID]:
    """Ids 1000, 1001, …: none of them starts with a dash."""
    numbers = iter(range(1000, 100_000))
    return lambda: UUID(int=next(numbers))


@pytest.fixture
def config() -> BrokerConfig:
    return make_config()


@pytest.fixture
def configured() -> Callable[..., BrokerConfig]:
    return make_config


def make_config(**settings: str) -> BrokerConfig:
    return broker_config(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/data",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@pytest.fixture
def apply() -> Applies:
    return append


def append(image: MetadataImage, records: Iterable[Message]) -> None:
    """Like a log: each record gets the next offset."""
    batch = list(records)
    image.apply(batch, offset=Offset(image.offset + len(batch)), epoch=image.epoch)


@pytest.fixture
def cluster() -> Callable[..., MetadataImage]:
    def make(
        *active: int, fenced: Iterable[int] = (), racks: str = "", elr: bool = True
    ) -> MetadataImage:
        """`racks`: a letter for each broker, in the given order."""
        image = MetadataImage()
        append(image, [FeatureLevelRecord(name="metadata.version", feature_level=30)])
        if elr:
            append(image, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
        fenced = list(fenced)
        for place, broker_id in enumerate([*active, *fenced]):
            append(
                image,
                [
                    RegisterBrokerRecord(
                        broker_id=broker_id,
                        broker_epoch=image.offset + 1,
                        incarnation_id=UUID(int=broker_id),
                        fenced=broker_id in fenced,
                        log_dirs=[UUID(int=5000 + broker_id)],
                        rack=racks[place] if racks else None,
                        features=[
                            BrokerFeature(
                                name="metadata.version",
                                min_supported_version=19,
                                max_supported_version=30,
                            )
                        ],
                    )
                ],
            )
        return image

    return make


def records_of(outcome: ControllerResult[object], kind: type[Message]) -> list[Message]:
    return [record for record in outcome.records if type(record) is kind]
