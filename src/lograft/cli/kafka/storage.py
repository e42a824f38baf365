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

#: The order in which Kafka's tool prints features.
ORDER: Final = (
    KRAFT_VERSION,
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-storage", "Format and inspect log directories.")
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
    arguments = parser.parse_args(list(words))
    if arguments.action == "random-uuid":
        print_random_uuid()
        return 0
    if arguments.action == "info":
        return print_info(arguments.config)
    if arguments.action == "version-mapping":
        print_version_mapping(arguments.release_version)
        return 0
    if arguments.action == "feature-dependencies":
        print_feature_dependencies(arguments.feature)
        return 0
    run_format(
        FormatOptions(
            cluster_id=arguments.cluster_id,
            config_file=arguments.config,
            standalone=arguments.standalone,
            initial_controllers=arguments.initial_controllers,
            no_initial_controllers=arguments.no_initial_controllers,
            ignore_formatted=arguments.ignore_formatted,
            release_version=arguments.release_version,
            features=tuple(arguments.feature),
            scram=tuple(arguments.add_scram),
        )
    )
    return 0


def print_version_mapping(release: str | None) -> None:
    """Prints the level of each feature in a release; by default, the latest."""
    version = LATEST_METADATA_VERSION if release is None else parse_release_version(release)
    print(f"{METADATA_VERSION}={version} ({release or METADATA_VERSIONS[version]})")
    levels = levels_of_version(version)
    for name in ORDER:
        print(f"{name}={levels[name]}")


def print_feature_dependencies(features: Sequence[str]) -> None:
    for name, level in map(parse_feature, features):
        required = required_metadata_version(name, level)
        release = f" ({METADATA_VERSIONS[level]})" if name == METADATA_VERSION else ""
        if required is None:
            print(f"{name}={level}{release} has no dependencies.")
        else:
            print(f"{name}={level} requires:")
            print(f"    {METADATA_VERSION}={required} ({METADATA_VERSIONS[required]})")
