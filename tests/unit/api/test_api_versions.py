"""ApiVersions on a broker's and on a controller's listener."""

from types import SimpleNamespace
from typing import cast

import pytest

from lograft.api import api_versions
from lograft.api.context import ANONYMOUS, ClientSoftware, Context
from lograft.api.router import served_apis
from lograft.broker.broker import Broker
from lograft.broker.client_telemetry import ClientTelemetry
from lograft.broker.shared_services import SharedServices
from lograft.metadata.features import SUPPORTED
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType, VersionRange
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import Offset
from lograft.wire.codec import read_all, write
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

REQUEST = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.12.0")


def context(version: int, role: str = "broker") -> Context:
    # A log that Apache Kafka wrote may finalize features that Lograft does not have.
    features = {"metadata.version": 30, "feature.of.tomorrow": 1}
    image = MetadataImage(offset=Offset(42), features=features)
    return Context(
        cast(
            SharedServices,
            SimpleNamespace(image=image, kraft_version=1),
        ),
        cast(
            Broker,
            SimpleNamespace(
                telemetry=ClientTelemetry(),
                config=SimpleNamespace(lograft_client_telemetry=False),
            ),
        ),
        api_key=18,
        api_version=version,
        client_id=None,
        listener="PLAINTEXT",
        role=role,
        peer=Address("127.0.0.1", 1),
        principal=ANONYMOUS,
        served=served_apis(role),
        software=ClientSoftware(),
    )


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("role", ["broker", "controller"])
def test_advertises_the_served_apis(version: int, role: str) -> None:
    response = api_versions.handle(context(version, role), REQUEST)
    assert response.error_code == 0
    offered = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert offered == {
        # Produce from 0 on, because of old librdkafka clients (KAFKA-18659).
        spec.key: (spec.min_version if spec.key else 0, spec.max_version)
        for spec in served_apis(role)
        if spec.key not in api_versions.TELEMETRY_KEYS
    }
    assert offered[18] == (0, 4)
    assert read_all(ApiVersionsResponse, version, write(response, version)).api_keys


@scenario(run)
async def test_telemetry_is_advertised_while_there_are_subscriptions(bench: Bench, /) -> None:
    async def is_advertised() -> bool:
        response = await bench.ask(REQUEST, 4, ApiVersionsResponse)
        return {each.api_key for each in response.api_keys} >= api_versions.TELEMETRY_KEYS

    def set_config(kind: int, resource: str, name: str, value: str | None) -> None:
        record = ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        bench.controller.append((record,))

    assert not await is_advertised()
    set_config(ResourceType.CLIENT_METRICS, "all", "metrics", "*")
    assert await is_advertised()
    set_config(ResourceType.CLIENT_METRICS, "all", "metrics", None)
    assert not await is_advertised()
    set_config(ResourceType.BROKER, "", "lograft.client.telemetry", "true")
    assert await is_advertised()


def test_supported_and_finalized_features() -> None:
    response = api_versions.handle(context(4), REQUEST)
    supported = {
        supported_feature.name: VersionRange(
            supported_feature.min_version, supported_feature.max_version
        )
        for supported_feature in response.supported_features
    }
    assert supported == SUPPORTED
    finalized = [
        (
            finalized_feature.name,
            finalized_feature.min_version_level,
            finalized_feature.max_version_level,
        )
        for finalized_feature in response.finalized_features
    ]
    assert finalized == [("kraft.version", 1, 1), ("metadata.version", 30, 30)]
    assert response.finalized_features_epoch == 42


def test_version_3_omits_features_with_minimum_level_0() -> None:
    response = api_versions.handle(context(3), REQUEST)
    names = {supported_feature.name for supported_feature in response.supported_features}
    assert names == {name for name, levels in SUPPORTED.items() if levels.min_version > 0}
    assert "metadata.version" in names


@pytest.mark.parametrize(
    ("name", "software_version", "good"),
    [
        ("apache-kafka-java", "4.3.1", True),
        ("x", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a", "1.", False),
        ("a b", "1", False),
        ("a\n", "1", False),
    ],
)
def test_client_software_name_and_version_are_validated(
    name: str, software_version: str, good: bool
) -> None:
    request = ApiVersionsRequest(
        client_software_name=name, client_software_version=software_version
    )
    expected = ErrorCode.NONE if good else ErrorCode.INVALID_REQUEST
    assert api_versions.handle(context(3), request).error_code == expected
    assert api_versions.handle(context(2), request).error_code == ErrorCode.NONE
