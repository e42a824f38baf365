"""Topics that one group may read: claims, and the settings that are allowed."""

from collections.abc import Callable, Collection
from uuid import UUID

import pytest

from lograft.metadata.configs import (
    alter_configs,
    incremental_alter_configs,
    topics_with_new_subscriptions,
)
from lograft.metadata.image import MetadataImage
from lograft.metadata.topic_claims import claim_request, claim_topics, find_unclaimed
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.message import Message
from lograft.wire.messages import alter_configs as replacing
from lograft.wire.messages import incremental_alter_configs as incremental
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.remove_topic_record import RemoveTopicRecord
from lograft.wire.records.topic_record import TopicRecord

TOPIC_ID = UUID(int=7)
MODE, GROUP = "subscription.mode", "subscription.group"
SET, DELETE = 0, 1


@pytest.fixture
def image(cluster: Callable[..., MetadataImage], apply: Callable[..., None]) -> MetadataImage:
    image = cluster(1)
    apply(image, [TopicRecord(name="t", topic_id=TOPIC_ID), *settings(**{MODE: "ptp"})])
    return image


def settings(**values: str | None) -> list[Message]:
    return [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)
        for name, value in values.items()
    ]


class Controller:
    """Decides, and replays the records of the decision."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self.image = image
        self.config = config
        self.sentence = ""

    def claim(self, group_id: str, topic: str = "t", *, held_before: str = "") -> ErrorCode:
        outcome = claim_topics(self.image, claim_request(group_id, topic, held_before=held_before))
        return self._apply(outcome.records, outcome.reply.responses[0])

    def alter(self, users: Collection[str], **values: str | None) -> ErrorCode:
        configs = [
            incremental.AlterableConfig(
                name=name, config_operation=DELETE if value is None else SET, value=value
            )
            for name, value in values.items()
        ]
        resource = incremental.AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name="t", configs=configs
        )
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        assert topics_with_new_subscriptions(request) == ["t"]
        outcome = incremental_alter_configs(
            self.image, request, config=self.config, users={"t": users}
        )
        return self._apply(outcome.records, outcome.reply.responses[0])

    def replace(self, **values: str) -> ErrorCode:
        configs = [replacing.AlterableConfig(name=n, value=v) for n, v in values.items()]
        resource = replacing.AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name="t", configs=configs
        )
        request = replacing.AlterConfigsRequest(resources=[resource])
        outcome = alter_configs(self.image, request, config=self.config)
        return self._apply(outcome.records, outcome.reply.responses[0])

    def _apply(
        self,
        records: Collection[Message],
        response: incremental.AlterConfigsResourceResponse | replacing.AlterConfigsResourceResponse,
    ) -> ErrorCode:
        for record in records:
            self.image.replay(record)
        self.sentence = response.error_message or ""
        assert bool(self.sentence) == bool(response.error_code)
        return ErrorCode(response.error_code)

    @property
    def set(self) -> dict[str, str]:
        return self.image.config_of(ResourceType.TOPIC, "t")


@pytest.fixture
def controller(image: MetadataImage, config: BrokerConfig) -> Controller:
    return Controller(image, config)


def test_the_first_group_gets_the_topic(controller: Controller) -> None:
    assert find_unclaimed(controller.image, "a", ["t", "other"]) == ["t"]
    assert controller.claim("a") is ErrorCode.NONE
    assert controller.set == {MODE: "ptp", GROUP: "a"}
    assert find_unclaimed(controller.image, "a", ["t"]) == []
    assert find_unclaimed(controller.image, "b", ["t"]) == ["t"]
    assert controller.claim("b") is ErrorCode.POLICY_VIOLATION
    assert (
        "Group 'b' may subscribe to it or commit to it only after group 'a' has left"
        in controller.sentence
    )
    assert controller.claim("a") is ErrorCode.NONE, "asked twice"


def test_a_claim_is_taken_only_from_the_one_that_was_looked_at(controller: Controller) -> None:
    controller.claim("a")
    assert controller.claim("b", held_before="a") is ErrorCode.NONE
    assert controller.claim("c", held_before="a") is ErrorCode.POLICY_VIOLATION
    assert controller.set[GROUP] == "b"
    controller.alter([], **{GROUP: None})
    assert controller.claim("c", held_before="b") is ErrorCode.NONE, "nobody had it any more"


def test_what_cannot_be_claimed(controller: Controller) -> None:
    assert controller.claim("a", "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert controller.claim("") is ErrorCode.INVALID_GROUP_ID
    request = claim_request("a", "t", held_before="")
    request.resources[0].configs[0].name = "retention.ms"
    outcome = claim_topics(controller.image, request)
    assert outcome.reply.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert outcome.records == ()


def test_a_topic_for_all_needs_no_claim(controller: Controller) -> None:
    assert controller.alter(["a", "b"], **{MODE: "psb"}) is ErrorCode.NONE
    assert controller.claim("a") is ErrorCode.NONE
    assert controller.set == {MODE: "psb"}
    assert find_unclaimed(controller.image, "a", ["t"]) == []


def test_a_mode_that_fits_those_who_read(controller: Controller) -> None:
    controller.alter(["a"], **{MODE: None})
    assert controller.set == {}
    assert controller.alter([], **{MODE: "ptp"}) is ErrorCode.NONE
    assert controller.set == {MODE: "ptp"}, "the first one that comes"
    controller.alter([], **{MODE: None})
    assert controller.alter(["a"], **{MODE: "ptp"}) is ErrorCode.NONE
    assert controller.set == {MODE: "ptp", GROUP: "a"}, "the one that is there"
    controller.alter(["a"], **{MODE: "psb"})
    assert controller.set == {MODE: "psb"}, "the claim goes with the mode"
    assert controller.alter(["b", "a"], **{MODE: "ptp"}) is ErrorCode.INVALID_CONFIG
    assert "'a' and 'b' subscribe to it or have committed offsets" in controller.sentence
    assert controller.set == {MODE: "psb"}


def test_an_operator_names_the_group(controller: Controller) -> None:
    assert controller.alter([], **{GROUP: "a"}) is ErrorCode.NONE
    assert controller.alter(["a"], **{GROUP: "b"}) is ErrorCode.INVALID_CONFIG
    assert "by group 'b' alone: 'a' subscribe" in controller.sentence
    assert controller.alter(["a"], **{GROUP: None}) is ErrorCode.NONE
    assert controller.set[GROUP] == "a", "it is in use, so it stays"
    assert controller.alter([], **{GROUP: None}) is ErrorCode.NONE
    assert controller.set == {MODE: "ptp"}
    assert controller.alter([], **{GROUP: "b"}) is ErrorCode.NONE
    assert controller.alter([], **{MODE: "psb", GROUP: "c"}) is ErrorCode.INVALID_CONFIG


def test_whoever_replaces_all_settings_keeps_the_claim(controller: Controller) -> None:
    controller.claim("a")
    assert controller.replace(**{MODE: "ptp", "retention.ms": "5"}) is ErrorCode.NONE
    assert controller.set == {MODE: "ptp", GROUP: "a", "retention.ms": "5"}
    assert controller.replace(**{"retention.ms": "5"}) is ErrorCode.NONE
    assert controller.set == {"retention.ms": "5"}


def test_claims_go_with_their_topic_and_through_snapshots(controller: Controller) -> None:
    controller.claim("a")
    image = controller.image
    rebuilt = MetadataImage()
    for record in image.records():
        rebuilt.replay(record)
    assert rebuilt.claims == image.claims == image.copy().claims == {"t": "a"}
    image.replay(RemoveTopicRecord(topic_id=TOPIC_ID))
    image.replay(TopicRecord(name="t", topic_id=UUID(int=8)))
    assert image.claims == {}
