"""Subscription modes, an extension of Lograft: a topic is read either by one group (`ptp`, point to
point) or by any number of groups (`psb`, publish and subscribe). The mode is a setting of the
topic. The first consumer that subscribes with a mode sets it; a subscription with another mode
fails.
"""

from collections.abc import Sequence
from typing import Final

from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, UnsupportedByBroker, WrongUse, raise_for
from lograft.client.retries import retry
from lograft.wire.messages import describe_configs as describing
from lograft.wire.messages import incremental_alter_configs as altering

MODES: Final = ("ptp", "psb")
_MODE: Final = "subscription.mode"
_GROUP: Final = "subscription.group"
_TOPIC: Final = 2
_SET: Final = 0


class WrongMode(ClientError):
    """The topic has another subscription mode, or is read by another group.

    try:
        consumer.unsubscribe
        await consumer.poll(timeout_ms=0)
    except WrongMode as error:
        print(error)
    """


class SubscriptionModes:
    """Sets or checks the mode of the topics of one subscription."""

    def __init__(
        self, core: ClientCore[ConsumerSettings], mode: str, topics: Sequence[str]
    ) -> None:
        if mode not in MODES:
            raise WrongUse(f"mode is {mode!r}, but must be one of {', '.join(MODES)}")
        self._core = core
        self._mode = mode
        self._topics = topics

    async def apply(self, group_id: str | None) -> str:
        """Sets or checks the mode of every topic. Returns the id of the group that reads them:
        `group_id`, or without one the group that the topics belong to."""
        timeout_ms = self._core.settings.default_api_timeout_ms
        deadline_ms = self._core.now_ms() + timeout_ms
        owners: set[str] = set()
        for topic in self._topics:
            await self._core.metadata.wait_topic(topic, deadline_ms=deadline_ms)

            async def attempt(topic: str = topic) -> str:
                return await self._apply_to_topic(topic)

            what = f"the subscription mode of topic {topic!r}"
            owner = await retry(self._core, attempt, what=what, timeout_ms=timeout_ms)
            if owner:
                owners.add(owner)
        if group_id is not None:
            return group_id
        if len(owners) > 1:
            raise WrongMode(
                f"the topics {', '.join(self._topics)} belong to several groups:"
                f" {', '.join(sorted(owners))}; subscribe to the topics of one group"
            )
        return owners.pop() if owners else f"ptp-{self._topics[0]}"

    async def _apply_to_topic(self, topic: str) -> str:
        """Returns the group that the topic belongs to, or ""."""
        response = await self._core.network.request(
            describing.DescribeConfigsRequest(
                resources=[
                    describing.DescribeConfigsResource(
                        resource_type=_TOPIC,
                        resource_name=topic,
                        configuration_keys=[_MODE, _GROUP],
                    )
                ]
            ),
            describing.DescribeConfigsResponse,
        )
        result = response.results[0]
        raise_for(result.error_code, f"the settings of topic {topic!r}", result.error_message)
        values = {config.name: config.value or "" for config in result.configs}
        if _MODE not in values:
            raise UnsupportedByBroker(
                "this cluster does not support subscription modes: subscribe without mode"
            )
        if values[_MODE] not in ("", self._mode):
            raise WrongMode(
                f"topic {topic!r} has {_MODE}={values[_MODE]}: subscribe with that mode, or change"
                " the topic's setting"
            )
        if not values[_MODE]:
            await self._set_mode(topic)
        return values.get(_GROUP, "")

    async def _set_mode(self, topic: str) -> None:
        response = await self._core.network.request(
            altering.IncrementalAlterConfigsRequest(
                resources=[
                    altering.AlterConfigsResource(
                        resource_type=_TOPIC,
                        resource_name=topic,
                        configs=[
                            altering.AlterableConfig(
                                name=_MODE, config_operation=_SET, value=self._mode
                            )
                        ],
                    )
                ]
            ),
            altering.IncrementalAlterConfigsResponse,
        )
        result = response.responses[0]
        raise_for(result.error_code, f"{_MODE} of topic {topic!r}", result.error_message)
