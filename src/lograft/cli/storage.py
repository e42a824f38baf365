"""`lograft storage`: random-uuid, info, format."""

from dataclasses import dataclass

from lograft.broker.quorum.formatting import (
    Controllers,
    FormatRequest,
    InitialControllers,
    NoInitialControllers,
    Standalone,
    directories_of,
    format_directories,
)
from lograft.cli.node_runner import read_config
from lograft.model.errors import InvalidInput, LograftError
from lograft.model.feature_levels import parse_feature, parse_release_version
from lograft.model.listeners import parse_initial_controllers
from lograft.model.seams import Disk
from lograft.model.settings.broker import BrokerConfig
from lograft.model.uuids import uuid_to_text
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.security.scram_credentials import parse_credential
from lograft.storage.log_dirs import MetaProperties, read_meta_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    cluster_id: str
    config_file: str
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    ignore_formatted: bool = False
    release_version: str | None = None
    features: tuple[str, ...] = ()
    scram: tuple[str, ...] = ()


def print_random_uuid() -> None:
    print(uuid_to_text(SystemRandomness().uuid()))


def run_format(options: FormatOptions) -> None:
    config = read_config(options.config_file)
    randomness = SystemRandomness()
    release = options.release_version
    request = FormatRequest(
        cluster_id=options.cluster_id,
        controllers=_parse_controllers(options),
        release=parse_release_version(release) if release is not None else None,
        features=dict(parse_feature(text) for text in options.features),
        scram=tuple(parse_credential(text, randomness) for text in options.scram),
        ignore_formatted=options.ignore_formatted,
    )
    report = format_directories(
        RealDisk(), config, request, randomness=randomness, now_ms=SystemClock().wall_ms()
    )
    if not report.directories:
        print("All of the log directories are already formatted.")
    for directory in report.directories:
        print(
            f"Formatting {directory.kind} directory {directory.path} with metadata.version"
            f" {report.metadata_version}."
        )


def _parse_controllers(options: FormatOptions) -> Controllers | None:
    chosen: list[Controllers] = []
    if options.standalone:
        chosen.append(Standalone())
    if options.initial_controllers is not None:
        chosen.append(InitialControllers(parse_initial_controllers(options.initial_controllers)))
    if options.no_initial_controllers:
        chosen.append(NoInitialControllers())
    if len(chosen) > 1:
        raise InvalidInput(
            "specify only one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    return chosen[0] if chosen else None


def print_info(config_file: str) -> int:
    """Prints the state of the log directories; returns 1 if there is a problem."""
    lines, problems = describe_directories(RealDisk(), read_config(config_file))
    print("\n".join(lines))
    return 1 if problems else 0


def describe_directories(disk: Disk, config: BrokerConfig) -> tuple[list[str], list[str]]:
    """Returns the lines to print, and the problems among them."""
    found: dict[str, MetaProperties | None] = {}
    problems = []
    for path in sorted(directories_of(config)):
        if not disk.is_dir(path):
            kind = "is not a directory" if disk.exists(path) else "does not exist"
            problems.append(f"{path} {kind}")
            continue
        try:
            found[path] = read_meta_properties(disk, path)
        except LograftError as error:
            problems.append(str(error))
            continue
        if found[path] is None:
            problems.append(f"{path} is not formatted.")
    metas = {path: meta for path, meta in found.items() if meta is not None}
    problems += _find_mismatches(config, metas)
    lines = _format_block("Found log director", "y", "ies", list(found))
    if metas:
        first = metas[next(iter(metas))]
        directory = uuid_to_text(first.directory_id) if first.directory_id else "none"
        lines += [
            f"Found metadata: {{cluster.id={first.cluster_id}, directory.id={directory},"
            f" node.id={first.node_id}, version={first.version}}}",
            "",
        ]
    lines += _format_block("Found problem", "", "s", problems)
    return lines, problems


def _find_mismatches(config: BrokerConfig, metas: dict[str, MetaProperties]) -> list[str]:
    problems = []
    for path, meta in metas.items():
        if meta.node_id != config.node_id:
            problems.append(
                f"{path} belongs to node {meta.node_id}, but node.id is {config.node_id}"
            )
        first = next(iter(metas.values()))
        if meta.cluster_id != first.cluster_id:
            problems.append(f"{path} belongs to another cluster, {meta.cluster_id}")
    return problems


def _format_block(title: str, singular: str, plural: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    ending = singular if len(entries) == 1 else plural
    return [f"{title}{ending}:", *(f"  {entry}" for entry in entries), ""]
