"""Owner of the metadata image and of the configuration derived from it.

The quorum reports committed batches and snapshots (`on_committed`, `on_snapshot`). Each of them
changes the image, then the configuration if it contains dynamic settings of this node, and then
runs the listeners with the difference, in the order in which they were added. Tasks that wait for a
condition of the image (`wait_image`) are woken last.

Invariants: only committed records change the image; the authorizer has the ACLs of the image;
`config` is the static configuration with all dynamic values that this node can apply, and
`skipped_values` are the others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from lograft.broker.quorum.snapshots import Snapshot
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.ignored_settings import find_stored_ignored_settings
from lograft.metadata.image import MetadataImage
from lograft.metadata.image_difference import difference
from lograft.metadata.types import ResourceType
from lograft.metadata.unenforced_state import describe_stored_features, describe_unenforced
from lograft.model.settings.broker import BrokerConfig, keys_of
from lograft.model.settings.delegation_tokens import token_settings
from lograft.model.settings.dynamic import (
    CHANGE_CHECKS,
    ChangeCheck,
    FileCheck,
    ResolvedConfig,
    SkippedValue,
    check_change,
    resolve_dynamic,
)
from lograft.model.settings.effects import NO_EFFECT_WARNING, find_without_effect
from lograft.model.settings.keys import ConfigSource
from lograft.model.settings.topic import (
    TopicConfig,
    find_invalid_overrides,
    resolve_topic_config,
)
from lograft.model.types import Epoch, Offset
from lograft.security.standard_authorizer import StandardAuthorizer
from lograft.wire.message import Message

LOGGER: Final = logging.getLogger(__name__)


class ImageWait(NamedTuple):
    is_met: Callable[[MetadataImage], bool]
    future: "asyncio.Future[None]"


class ClusterMetadata:
    def __init__(
        self, config: BrokerConfig, *, authorizer: StandardAuthorizer | None = None
    ) -> None:
        self.image = MetadataImage()
        #: Gets every change of the ACLs before anything else sees it. None: they are not enforced.
        self.authorizer = authorizer
        #: The settings of the configuration file, without dynamic ones.
        self.static_config = config
        self.config = config
        #: Stored dynamic values that this node cannot apply.
        self.skipped_values: tuple[SkippedValue, ...] = ()
        #: Each may reject a change of dynamic settings before it is stored.
        self.change_checks: list[ChangeCheck] = list(CHANGE_CHECKS)
        self.file_checks: list[FileCheck] = []
        #: Each returns the reasons why settings in force could not be applied.
        self.apply_failures: list[Callable[[], Iterable[str]]] = [self._skipped_topic_values]
        #: By topic: the stored settings that are invalid, with the reasons.
        self._invalid_overrides: dict[str, dict[str, str]] = {}
        #: Called with the config before and after, whenever dynamic settings were written: also
        #: with equal ones, since a file that a setting names may have changed.
        self.on_config_changed: list[Callable[[BrokerConfig, BrokerConfig], None]] = []
        self.on_changed: list[Callable[[MetadataDelta], None]] = []
        self._waits: list[ImageWait] = []
        #: Last log line for each kind of unenforced state; None while this node is starting.
        self._unenforced: dict[str, str] | None = None
        #: A broker applies dynamic settings once the image contains its registration, since earlier
        #: values may have been replaced. A controller applies them from the start.
        self._follows_config = not config.is_broker

    def count_apply_failures(self) -> int:
        """Returns how many stored values this node cannot apply, or could not."""
        failures = sum(1 for find in self.apply_failures for _ in find())
        return len(self.skipped_values) + failures

    # ── the image ────────────────────────────────────────────────────────────────────────────

    def on_committed(self, offset: Offset, epoch: Epoch, records: Sequence[Message]) -> None:
        self._change(self.image.apply(records, offset=offset, epoch=epoch))

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Replaces all batches up to the end of the snapshot."""
        before, self.image = self.image, MetadataImage()
        last = Offset(snapshot.id.end_offset - 1)
        self.image.apply(snapshot.records, offset=last, epoch=snapshot.id.epoch)
        self._change(difference(before, self.image))

    def _change(self, delta: MetadataDelta) -> None:
        if delta.acls and self.authorizer is not None:
            acls = self.image.acls
            self.authorizer.update({acl_id: acls.get(acl_id) for acl_id in delta.acls})
        if self._follows_config and any(
            resource.type == ResourceType.BROKER
            and resource.name in ("", str(self.static_config.node_id))
            for resource in delta.configs
        ):
            self.follow_config()
        if self._unenforced is not None and (delta.security or delta.quotas or delta.features):
            self.warn_of_unenforced_state()
        self._find_invalid_overrides(delta)
        for listener in self.on_changed:
            listener(delta)
        if self._waits:
            self._waits = [wait for wait in self._waits if not self._is_over(wait)]

    def warn_of_ignored_settings(self) -> None:
        """Logs stored settings without effect at startup; the active controller reports
        changes."""
        ignored = find_stored_ignored_settings(self.image)
        if ignored:
            LOGGER.warning(NO_EFFECT_WARNING, ", ".join(ignored))

    def warn_of_unenforced_state(self) -> None:
        """Logs stored state that is not enforced, at startup and when it changes, since an
        operator may rely on it."""
        warnings = describe_unenforced(
            self.image,
            has_authorizer=self.authorizer is not None,
            uses_tokens=token_settings(self.config) is not None,
        ) | describe_stored_features(self.image)
        before, self._unenforced = self._unenforced or {}, warnings
        for kind, sentence in warnings.items():
            if before.get(kind) != sentence:
                LOGGER.warning("%s", sentence)

    def _is_over(self, wait: ImageWait) -> bool:
        if not wait.future.done() and wait.is_met(self.image):
            wait.future.set_result(None)
        return wait.future.done()

    async def wait_image(
        self, is_met: Callable[[MetadataImage], bool], *, timeout_ms: int | None = None
    ) -> None:
        """Returns when the image meets the condition or the timeout expires; the caller checks
        again."""
        if is_met(self.image):
            return
        wait = ImageWait(is_met, asyncio.get_running_loop().create_future())
        self._waits.append(wait)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await wait.future
        except TimeoutError:
            pass
        finally:
            wait.future.cancel()

    async def wait_offset(self, offset: Offset, *, timeout_ms: int | None = None) -> None:
        """Like `wait_image`, for an image with all records up to this offset."""
        await self.wait_image(lambda image: image.offset >= offset, timeout_ms=timeout_ms)

    # ── settings ─────────────────────────────────────────────────────────────────────────────

    def topic_config(self, topic: str) -> TopicConfig:
        overrides = self.image.config_of(ResourceType.TOPIC, topic)
        return resolve_topic_config(overrides, self.config)

    def _find_invalid_overrides(self, delta: MetadataDelta) -> None:
        """Logs the invalid settings of the changed topics; `topic_config` skips them."""
        for resource in delta.configs:
            if resource.type != ResourceType.TOPIC:
                continue
            invalid = find_invalid_overrides(self.image.config_of(resource.type, resource.name))
            known = self._invalid_overrides.pop(resource.name, {})
            if invalid:
                self._invalid_overrides[resource.name] = invalid
            for name, reason in invalid.items():
                if known.get(name) != reason:
                    LOGGER.error(
                        "ignoring the invalid value of %s for topic %s: %s",
                        name,
                        resource.name,
                        reason,
                    )

    def _skipped_topic_values(self) -> Iterator[str]:
        for topic, invalid in self._invalid_overrides.items():
            for name, reason in invalid.items():
                yield f"{name} of topic {topic}: {reason}"

    def check_dynamic_change(
        self, values: Mapping[str, str], *, named: Iterable[str], whole_cluster: bool
    ) -> None:
        """Raises InvalidInput unless this node can apply the dynamic values. `values` are all those
        of one broker, or of the whole cluster, after a request that changes `named`."""
        source = ConfigSource.DYNAMIC_BROKER
        default, broker = self._dynamic_values()
        if whole_cluster:
            source, default = ConfigSource.DYNAMIC_DEFAULT_BROKER, values
        else:
            broker = values
        check_change(
            self.static_config,
            ResolvedConfig(self.config, self.skipped_values),
            default=default,
            broker=broker,
            named=[(source, name) for name in named],
            checks=self.change_checks,
            file_checks=self.file_checks,
        )

    def _dynamic_values(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Returns the values stored for all brokers, and those for this broker."""
        return (
            self.image.config_of(ResourceType.BROKER, ""),
            self.image.config_of(ResourceType.BROKER, str(self.static_config.node_id)),
        )

    def follow_config(self) -> None:
        """Applies the stored dynamic settings, and every change from now on."""
        self._follows_config = True
        before = self.config
        default, broker = self._dynamic_values()
        resolved = resolve_dynamic(self.static_config, default=default, broker=broker)
        for value in resolved.skipped:
            if value not in self.skipped_values:
                LOGGER.error(
                    "skipping the %s value of %s, which this node cannot apply: %s",
                    "cluster-wide"
                    if value.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
                    else "per-broker",
                    value.name,
                    value.reason,
                )
        self.config, self.skipped_values = resolved
        self._warn_of_settings_without_effect(before)
        for follow in self.on_config_changed:
            follow(before, self.config)

    def _warn_of_settings_without_effect(self, before: BrokerConfig) -> None:
        """Logs dynamic values that are new since `before` and have no effect."""
        known = {**before.dynamic_default, **before.dynamic_broker}
        values = {**self.config.dynamic_default, **self.config.dynamic_broker}
        changed = {name: text for name, text in values.items() if known.get(name) != text}
        ignored = find_without_effect(keys_of(changed), changed)
        if ignored:
            LOGGER.warning(NO_EFFECT_WARNING, ", ".join(ignored))
