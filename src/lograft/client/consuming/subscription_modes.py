"""Subscription modes, which are Lograft's own: whether one group reads a topic (`ptp`, point to
point) or any number of groups (`psb`, publish and subscribe). The mode is a setting of the topic;
the first who subscribes with a mode sets it, and who subscribes with another one is told.
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
    """The topic is read in another way.

    try:
        consumer.unsubscribe
        await consumer.poll(timeout_ms=0)
    except WrongMode as error:
        print(error)
    """


class SubscriptionModes:
    """Of one subscription."""

    def __init__(
        self, core: ClientCore[ConsumerSettings], mode: str, topics: Sequence[str]
    ) -> None:
        if mode not in MODES:
            raise WrongUse(f"mode is {mode!r}, but must be one of {', '.join(MODES)}")
        self._core = core
        self._mode = mode
        self._topics = topics

    async def settle(self, group_id: str | None) -> str:
        """Makes sure that every topic has the mode; which group reads them: ours, or, where none
        is named, the one that has them."""
        budget_ms = self._core.settings.default_api_timeout_ms
        deadline_ms = self._core.now_ms() + budget_ms
        holders: set[str] = set()
        for topic in self._topics:
            await self._core.metadata.wait_topic(topic, deadline_ms=deadline_ms)

            async def attempt(topic: str = topic) -> str:
                return await self._settle_topic(topic)

            what = f"the subscription mode of topic {topic!r}"
            holder = await retry(self._core, attempt, what=what, timeout_ms=budget_ms)
            if holder:
                holders.add(holder)
        if group_id is not None:
            return group_id
        if len(holders) > 1:
            raise WrongMode(
                f"the topics {', '.join(self._topics)} belong to several groups:"
                f" {', '.join(sorted(holders))}; subscribe to the topics of one"
            )
        return holders.pop() if holders else f"ptp-{self._topics[0]}"

    async def _settle_topic(self, topic: str) -> str:
        """The group that has the topic, or ""."""
        answer = await self._core.network.request(
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
        told = answer.results[0]
        raise_for(told.error_code, f"the settings of topic {topic!r}", told.error_message)
        found = {one.name: one.value or "" for one in told.configs}
        if _MODE not in found:
            raise UnsupportedByBroker(
                "this cluster knows no subscription modes: subscribe without mode"
            )
        if found[_MODE] not in ("", self._mode):
            raise WrongMode(
                f"topic {topic!r} has {_MODE}={found[_MODE]}: subscribe with that mode, or change"
                " the topic's setting"
            )
        if not found[_MODE]:
            await self._set(topic)
        return found.get(_GROUP, "")

    async def _set(self, topic: str) -> None:
        answer = await self._core.network.request(
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
        told = answer.responses[0]
        raise_for(told.error_code, f"{_MODE} of topic {topic!r}", told.error_message)
