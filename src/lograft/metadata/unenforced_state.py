"""State in the metadata log, written by Apache Kafka, that Lograft stores but does not enforce.

Operators who migrate a Kafka data directory may rely on it, so nodes log a warning at startup and
`lograft doctor` reports it.
"""

from collections.abc import Iterator
from typing import Final

from lograft.metadata.client_quotas import is_ip_address
from lograft.metadata.features import STORED
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType
from lograft.model.settings.effects import describe_effect, is_supported
from lograft.model.settings.keys import Unsupported
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.security.quota_limits import IP

_UNSUPPORTED_TOPIC_SETTINGS: Final = tuple(
    key for key in TOPIC_CONFIGS.values() if isinstance(key.effect, Unsupported)
)
#: Maximum number of topics in one message.
_NAMES_MAX: Final = 5


def describe_unenforced(
    image: MetadataImage, *, has_authorizer: bool = False, uses_tokens: bool = False
) -> dict[str, str]:
    """Messages by kind, each with the amount of state and its meaning. `uses_tokens`: delegation
    tokens are enabled on this node."""
    return dict(_sentences(image, has_authorizer, uses_tokens))


def _sentences(
    image: MetadataImage, has_authorizer: bool, uses_tokens: bool
) -> Iterator[tuple[str, str]]:
    if image.acls and not has_authorizer:
        yield (
            "ACLs",
            f"{_count(len(image.acls), 'ACL')} stored but not enforced, because"
            " authorizer.class.name is not set: every client that can connect may do everything",
        )
    hosts = sorted(
        part.name
        for entity in image.client_quotas
        for part in entity
        if part.type == IP and part.name is not None and not is_ip_address(part.name)
    )
    if hosts:
        yield (
            "quotas",
            f"the connection quotas of {', '.join(hosts[:_NAMES_MAX])} are stored but not enforced:"
            " set them for IP addresses instead of host names",
        )
    if image.delegation_tokens and not uses_tokens:
        yield (
            "tokens",
            f"{_count(len(image.delegation_tokens), 'delegation token')} stored but not used:"
            " delegation.token.secret.key is not set on this node",
        )
    yield from _unsupported_topic_settings(image)


def _unsupported_topic_settings(image: MetadataImage) -> Iterator[tuple[str, str]]:
    for key in _UNSUPPORTED_TOPIC_SETTINGS:
        topics = sorted(
            resource.name
            for resource, values in image.configs.items()
            if resource.type == ResourceType.TOPIC and not is_supported(key, values.get(key.name))
        )
        if topics:
            more = ", …" if len(topics) > _NAMES_MAX else ""
            yield (
                key.name,
                f"{key.name} is set for {len(topics)} topics"
                f" ({', '.join(topics[:_NAMES_MAX])}{more}). {describe_effect(key.effect)}",
            )


def describe_stored_features(image: MetadataImage) -> dict[str, str]:
    """Same as `describe_unenforced`, for features that Lograft does not implement."""
    stored = [f"{name} {image.features[name]}" for name in STORED if image.features.get(name)]
    if not stored:
        return {}
    return {
        "features": f"{' and '.join(stored)}: the levels are stored for Apache Kafka; Lograft does"
        " not serve these groups and does not return the features to clients as finalized"
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"
