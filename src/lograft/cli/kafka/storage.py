"""kafka-storage: random-uuid, info, format, version-mapping, feature-dependencies."""

from collections.abc import Sequence
from typing import Final

from lograft.cli.kafka.tools import Parser
from lograft.cli.storage import FormatOptions, print_info, print_random_uuid, run_format
from lograft.model.feature_levels import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    levels_of_version,
    parse_feature,
    parse_release_version,
    required_metadata_version,
)

#: In which Kafka's tool names them.
ORDER: Final = (
    KRAFT_VERSION,
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-storage", "Prepare and look at data folders.")
    actions = parser.add_actions()
    actions.add_parser("random-uuid")
    info = actions.add_parser("info")
    info.add_argument("--config", "-c", required=True, metavar="FILE")
    form = actions.add_parser("format")
    form.add_argument("--config", "-c", required=True, metavar="FILE")
    form.add_argument("--cluster-id", "-t", required=True, metavar="ID")
    form.add_argument("--standalone", "-s", action="store_true")
    form.add_argument("--initial-controllers", "-I", metavar="ID@HOST:PORT:DIRECTORY,…")
    form.add_argument("--no-initial-controllers", "-N", action="store_true")
    form.add_argument("--ignore-formatted", "-g", action="store_true")
    form.add_argument("--release-version", "-r", metavar="VERSION")
    form.add_argument("--feature", "-f", action="append", default=[], metavar="NAME=LEVEL")
    form.add_argument("--add-scram", "-S", action="append", default=[], metavar="CREDENTIAL")
    mapping = actions.add_parser("version-mapping")
    mapping.add_argument("--release-version", "-r", metavar="VERSION")
    dependencies = actions.add_parser("feature-dependencies")
    dependencies.add_argument(
        "--feature", "-f", action="append", required=True, metavar="NAME=LEVEL"
    )
    given = parser.parse_args(list(arguments))
    if given.action == "random-uuid":
        print_random_uuid()
        return 0
    if given.action == "info":
        return print_info(given.config)
    if given.action == "version-mapping":
        print_version_mapping(given.release_version)
        return 0
    if given.action == "feature-dependencies":
        print_feature_dependencies(given.feature)
        return 0
    run_format(
        FormatOptions(
            cluster_id=given.cluster_id,
            config_file=given.config,
            standalone=given.standalone,
            initial_controllers=given.initial_controllers,
            no_initial_controllers=given.no_initial_controllers,
            ignore_formatted=given.ignore_formatted,
            release_version=given.release_version,
            features=tuple(given.feature),
            scram=tuple(given.add_scram),
        )
    )
    return 0


def print_version_mapping(release: str | None) -> None:
    """The level of every feature in a release, the newest if none is named."""
    version = LATEST_METADATA_VERSION if release is None else parse_release_version(release)
    print(f"{METADATA_VERSION}={version} ({release or METADATA_VERSIONS[version]})")
    levels = levels_of_version(version)
    for name in ORDER:
        print(f"{name}={levels[name]}")


def print_feature_dependencies(wanted: Sequence[str]) -> None:
    for name, level in map(parse_feature, wanted):
        needed = required_metadata_version(name, level)
        shown = f" ({METADATA_VERSIONS[level]})" if name == METADATA_VERSION else ""
        if needed is None:
            print(f"{name}={level}{shown} has no dependencies.")
        else:
            print(f"{name}={level} requires:")
            print(f"    {METADATA_VERSION}={needed} ({METADATA_VERSIONS[needed]})")
