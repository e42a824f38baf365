"""Settings with an effect on partitions change the partitions in the same batch."""

from collections.abc import Callable

import pytest

from lograft.metadata.config_effects import uniform_min_isr
from lograft.metadata.configs import alter_configs, incremental_alter_configs
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.wire.messages import alter_configs as replacing
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lograft.wire.records.config_record import ConfigRecord
from tests.unit.metadata.conftest import append, make_config
from tests.unit.metadata.test_elections import Case, written

Cluster = Callable[..., MetadataImage]
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def set_(
    image: MetadataImage, name: str, value: str | None, *, kind: int = 2, of: str = "t"
) -> tuple[int, str]:
    """The error code, and the new state of the partition."""
    change = AlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=of, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    outcome = incremental_alter_configs(image, request, config=make_config())
    append(image, outcome.records)
    (topic,) = image.topics.values()
    return outcome.reply.responses[0].error_code, written(topic.partitions[0])


@pytest.mark.parametrize(
    ("before", "minimum", "after"),
    [
        ("123/1/23 1", "1", "123/1 1"),
        ("123/1/23 1", "3", "123/1/23 1"),
        # Without a leader nothing can be committed in the meantime.
        ("123//23/2 -", "1", "123//23/2 -"),
    ],
)
def test_a_lower_minimum_ends_eligibility(
    cluster: Cluster, before: str, minimum: str, after: str
) -> None:
    image = cluster(1, fenced=[2, 3])
    Case(image, before, settings={MIN_ISR: "2"})
    assert set_(image, MIN_ISR, minimum) == (0, after)


def test_the_clusters_minimum_reaches_topics_without_their_own(cluster: Cluster) -> None:
    image = cluster(1, fenced=[2, 3])
    append(image, [ConfigRecord(resource_type=4, resource_name="", name=MIN_ISR, value="2")])
    Case(image, "123/1/23 1")
    assert set_(image, MIN_ISR, "3", kind=4, of="") == (0, "123/1/23 1")
    assert set_(image, MIN_ISR, "1", kind=4, of="") == (0, "123/1 1")


def test_invalid_stored_values_are_skipped(cluster: Cluster) -> None:
    """Kafka's controllers store any value for brokers."""
    image = cluster(1, fenced=[2, 3])
    for resource, name, value in (
        ("", MIN_ISR, "2"),
        ("1", MIN_ISR, "-3"),
        ("", UNCLEAN, "maybe"),
    ):
        append(
            image,
            [ConfigRecord(resource_type=4, resource_name=resource, name=name, value=value)],
        )
    Case(image, "123/1/23 1", settings={UNCLEAN: "perhaps"})
    assert set_(image, MIN_ISR, "2") == (0, "123/1/23 1")
    assert set_(image, MIN_ISR, "1") == (0, "123/1 1")


@pytest.mark.parametrize(("stored", "written"), [(None, "1"), ("abc", "1"), ("2", None)])
def test_the_uniform_minimum_is_valid(
    cluster: Cluster, stored: str | None, written: str | None
) -> None:
    image = cluster(1)
    record = ConfigRecord(resource_type=4, resource_name="", name=MIN_ISR, value=stored)
    append(image, [record])
    assert [record.value for record in uniform_min_isr(image, 1)] == ([written] if written else [])


def test_one_minimum_for_all_brokers(cluster: Cluster) -> None:
    image = cluster(1)
    Case(image, "1/1 1")
    assert set_(image, MIN_ISR, "2", kind=4, of="1")[0] == ErrorCode.INVALID_CONFIG
    assert set_(image, MIN_ISR, "2", kind=4, of="")[0] == 0
    assert set_(image, MIN_ISR, None, kind=4, of="")[0] == ErrorCode.INVALID_CONFIG
    old = cluster(1, elr=False)
    Case(old, "1/1 1")
    assert set_(old, MIN_ISR, "2", kind=4, of="")[0] == 0
    assert set_(old, MIN_ISR, None, kind=4, of="")[0] == 0


def test_unclean_elections_happen_once_they_are_allowed(cluster: Cluster) -> None:
    image = cluster(3, fenced=[1, 2])
    Case(image, "123//2/1 -")
    assert set_(image, "retention.ms", "7") == (0, "123//2/1 -")
    assert set_(image, UNCLEAN, "true") == (0, "123/3 3 recovering")


def test_the_older_request_has_the_same_effects(cluster: Cluster) -> None:
    image = cluster(3, fenced=[1, 2])
    case = Case(image, "123//2/1 -")
    value = replacing.AlterableConfig(name=UNCLEAN, value="true")
    resource = replacing.AlterConfigsResource(resource_type=2, resource_name="t", configs=[value])
    for validate_only, leader in ((True, -1), (False, 3)):
        request = replacing.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        append(image, alter_configs(image, request, config=make_config()).records)
        assert case.topic.partitions[0].leader == leader
