"""Kafka's metadata versions by name and level, and the features that each of them enables.

Facts about Kafka 4.3, for formatting storage; Lograft's own levels are in `metadata/features`.
"""

import re
from collections.abc import Mapping
from typing import Final

from lograft.model.errors import InvalidInput

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"

#: Level -> name. Levels below 7 belong to releases that are no longer supported by KRaft.
METADATA_VERSIONS: Final = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
LATEST_METADATA_VERSION: Final = max(METADATA_VERSIONS)
#: Versions that introduced new metadata records or fields.
METADATA_CHANGES: Final = (7, 8, 11, 13, 14, 15, 17, 23, 30)
#: From this version on SCRAM users are stored in the metadata log.
SCRAM_SINCE: Final = 11
#: From this version on delegation tokens are.
DELEGATION_TOKENS_SINCE: Final = 14

#: Feature -> (its highest level, the metadata version that enables that level by default).
FEATURES: Final = {
    "eligible.leader.replicas.version": (1, 26),
    "group.version": (1, 22),
    KRAFT_VERSION: (1, 21),
    "share.version": (1, 28),
    "streams.version": (1, 29),
    "transaction.version": (2, 24),
}
#: (feature, level) -> the metadata version that it requires.
REQUIRED_METADATA_VERSIONS: Final = {("eligible.leader.replicas.version", 1): 23}


def parse_release_version(text: str) -> int:
    """Returns the level of `4.3-IV0`, or the latest level of `4.3` or `4.3.1`."""
    release = re.fullmatch(r"([0-9]+\.[0-9]+)(\.[0-9]+)?(-IV[0-9]+)?", text.strip())
    if release is not None:
        prefix = release[1] + (release[3] or "")
        matching = [
            level
            for level, name in METADATA_VERSIONS.items()
            if name == prefix or (not release[3] and name.startswith(f"{prefix}-"))
        ]
        if matching:
            return max(matching)
    raise InvalidInput(
        f"Unknown release version {text!r}: use one of {', '.join(METADATA_VERSIONS.values())}"
    )


def parse_feature(text: str) -> tuple[str, int]:
    """`group.version=1`"""
    name, equals, level = text.partition("=")
    if not equals or not re.fullmatch(r"[0-9]{1,5}", level.strip()):
        raise InvalidInput(
            f"--feature {text!r}: write it as name=level, for example group.version=1"
        )
    return name.strip(), int(level)


def feature_levels(release: int | None, wanted: Mapping[str, int]) -> dict[str, int]:
    """Returns the level of every feature for a new cluster, metadata.version first, without those
    at level 0 and without kraft.version, which is stored in the quorum's own log."""
    version = _metadata_version(release, wanted)
    levels = {METADATA_VERSION: version}
    for name, level in wanted.items():
        _check_level(name, level)
    for name, brought in levels_of_version(version).items():
        level = wanted.get(name, brought)
        needed = REQUIRED_METADATA_VERSIONS.get((name, level), 0)
        if version < needed:
            raise InvalidInput(
                f"{name} could not be set to {level} because it depends on metadata.version"
                f" {METADATA_VERSIONS[needed]} (level {needed})"
            )
        if level and name != KRAFT_VERSION:
            levels[name] = level
    return levels


def levels_of_version(version: int) -> dict[str, int]:
    """Returns the levels of all other features that a metadata version enables."""
    return {name: top if version >= since else 0 for name, (top, since) in FEATURES.items()}


def required_metadata_version(name: str, level: int) -> int | None:
    """Returns the metadata version that the feature requires for this level."""
    _check_level(name, level)
    return REQUIRED_METADATA_VERSIONS.get((name, level))


def _check_level(name: str, level: int) -> None:
    if name == METADATA_VERSION:
        if level not in METADATA_VERSIONS:
            raise InvalidInput(
                f"metadata.version has no level {level}: its levels are {min(METADATA_VERSIONS)} to"
                f" {LATEST_METADATA_VERSION}"
            )
        return
    if name not in FEATURES:
        raise InvalidInput(
            f"Unsupported feature: {name}. Supported features are: {', '.join(FEATURES)}"
        )
    highest, _since = FEATURES[name]
    if not 0 <= level <= highest:
        raise InvalidInput(f"{name} has no level {level}: its highest is {highest}")


def _metadata_version(release: int | None, wanted: Mapping[str, int]) -> int:
    if METADATA_VERSION not in wanted:
        return LATEST_METADATA_VERSION if release is None else release
    if release is not None:
        raise InvalidInput("Use either --release-version or --feature metadata.version=X, not both")
    _check_level(METADATA_VERSION, wanted[METADATA_VERSION])
    return wanted[METADATA_VERSION]
