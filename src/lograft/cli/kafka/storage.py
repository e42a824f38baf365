"""kafka-storage: random-uuid, info, format."""

import argparse
from collections.abc import Sequence

from lograft.cli.kafka.tools import Parser
from lograft.cli.storage import FormatOptions, print_info, print_random_uuid, run_format


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-storage", "Prepare and look at data folders.")
    actions = parser.add_subparsers(
        dest="action", required=True, parser_class=argparse.ArgumentParser
    )
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
    given = parser.parse_args(list(arguments))
    if given.action == "random-uuid":
        print_random_uuid()
        return 0
    if given.action == "info":
        return print_info(given.config)
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
