"""Formatting storage: writes the files that tie log dirs to a node and a cluster, as Kafka does.

Every log dir gets `bootstrap.checkpoint` (the features and users that the first controller writes)
and, last, `meta.properties`: a folder with that file is formatted, one without can be formatted
again after a crash. The metadata dir of a dynamic quorum also gets the snapshot at offset 0 with
the first voters. All files are durable when `format_directories` returns.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from lograft.model.errors import InvalidInput
from lograft.model.feature_levels import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SCRAM_SINCE,
    feature_levels,
)
from lograft.model.listeners import Voter
from lograft.model.seams import Disk, Randomness
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import METADATA_TOPIC
from lograft.model.uuids import uuid_to_text
from lograft.storage.log_dirs import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_atomically,
    write_meta_properties,
)
from lograft.wire import record_frames as frames
from lograft.wire.batches import Record, build_batch
from lograft.wire.message import Message
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.kraft_version_record import KRaftVersionRecord
from lograft.wire.records.snapshot_footer_record import SnapshotFooterRecord
from lograft.wire.records.snapshot_header_record import SnapshotHeaderRecord
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from lograft.wire.records.voters_record import Endpoint as VoterEndpoint
from lograft.wire.records.voters_record import KRaftVersionFeature, VotersRecord
from lograft.wire.records.voters_record import Voter as VoterEntry

if TYPE_CHECKING:
    # Every start imports this module; only formatting with users needs their credentials.
    from lograft.security.scram_credentials import ScramCredential

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
FIRST_SNAPSHOT_FILE: Final = f"{0:020d}-{0:010d}.checkpoint"


@dataclass(frozen=True, slots=True)
class Standalone:
    """A dynamic quorum with this node as its first voter."""


@dataclass(frozen=True, slots=True)
class InitialControllers:
    """A dynamic quorum with these first voters."""

    voters: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class NoInitialControllers:
    """The node joins an existing quorum."""


Controllers: TypeAlias = Standalone | InitialControllers | NoInitialControllers


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest:
    cluster_id: str
    #: None if the quorum is static (controller.quorum.voters) or the node is only a broker.
    controllers: Controllers | None = None
    #: A level of metadata.version; None for the newest.
    release: int | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    scram: "tuple[ScramCredential, ...]" = ()
    ignore_formatted: bool = False

    @classmethod
    def for_new_cluster(
        cls, randomness: Randomness, *, controllers: Controllers | None
    ) -> "FormatRequest":
        return cls(cluster_id=uuid_to_text(randomness.uuid()), controllers=controllers)


@dataclass(frozen=True, slots=True)
class FormattedDirectory:
    path: str
    #: "data", "metadata", "dynamic metadata" or "dynamic metadata voter".
    kind: str
    directory_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatReport:
    #: Empty if everything was formatted before.
    directories: tuple[FormattedDirectory, ...]
    features: Mapping[str, int]

    @property
    def metadata_version(self) -> str:
        return METADATA_VERSIONS[self.features[METADATA_VERSION]]


def format_directories(
    disk: Disk,
    config: BrokerConfig,
    request: FormatRequest,
    *,
    randomness: Randomness,
    now_ms: int,
) -> FormatReport:
    """Formats the log dirs that are not formatted yet; blocks. Raises InvalidInput before anything
    is written if the request is invalid."""
    levels = feature_levels(request.release, request.features)
    _check_request(config, request, levels)
    formatted = _formatted_before(disk, config, request)
    missing = [path for path in directories_of(config) if path not in formatted]
    voters = _voters(config, request, randomness)
    bootstrap = bootstrap_snapshot(_bootstrap_records(levels, request.scram), now_ms=now_ms)
    taken = {meta.directory_id for meta in formatted.values()}
    taken |= {voter.directory_id for voter in voters}
    done = []
    for path in missing:
        own = [voter for voter in voters if voter.node_id == config.node_id]
        directory_id = own[0].directory_id if own and path == config.metadata_log_dir else None
        if directory_id is None:
            directory_id = randomness.uuid()
            while directory_id in taken:
                directory_id = randomness.uuid()
        taken.add(directory_id)
        _make_durable(disk, path)
        write_atomically(disk, f"{path}/{BOOTSTRAP_FILE}", bootstrap)
        kind = "data"
        if path == config.metadata_log_dir:
            kind = _metadata_kind(bool(voters), bool(own))
            if voters:
                _write_first_snapshot(disk, path, voters_snapshot(config, voters, now_ms=now_ms))
        meta = MetaProperties(
            node_id=config.node_id, cluster_id=request.cluster_id, directory_id=directory_id
        )
        write_meta_properties(disk, path, meta)
        done.append(FormattedDirectory(path, kind, directory_id))
    return FormatReport(directories=tuple(done), features=levels)


def _make_durable(disk: Disk, path: str) -> None:
    """Creates the folder and its parents durably: a power loss must not remove a folder whose files
    were fsynced."""
    if disk.is_dir(path):
        return
    parent = _parent(path)
    _make_durable(disk, parent)
    disk.make_dir(path)
    disk.fsync_dir(parent)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def _reject_file(disk: Disk, path: str) -> None:
    """Raises InvalidInput if the path or one of its parents is a file."""
    place = path
    while not disk.exists(place) and place != _parent(place):
        place = _parent(place)
    if disk.exists(place) and not disk.is_dir(place):
        raise InvalidInput(
            f"{path} cannot be a log dir, because {place} is a file: correct log.dirs, or move the"
            " file"
        )


def directories_of(config: BrokerConfig) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*config.log_dirs, config.metadata_log_dir)))


def bootstrap_snapshot(records: Sequence[Message], *, now_ms: int) -> bytes:
    """Returns the content of bootstrap.checkpoint, whose header has no log timestamp."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0)
    head = _control_batch(0, [(frames.SNAPSHOT_HEADER, header)], now_ms)
    data = [
        Record(offset, now_ms, None, frames.encode_record(message, 0))
        for offset, message in enumerate(records, 1)
    ]
    return head + build_batch(data, leader_epoch=0) + _footer(1 + len(data), now_ms)


def voters_snapshot(config: BrokerConfig, voters: Iterable[Voter], *, now_ms: int) -> bytes:
    """Returns the snapshot at offset 0, with which the log of a dynamic quorum starts."""
    lowest, highest = 0, FEATURES[KRAFT_VERSION][0]
    entries = [
        VoterEntry(
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id or UUID(int=0),
            endpoints=[
                VoterEndpoint(
                    name=config.controller_listener_names[0],
                    host=voter.address.host,
                    port=voter.address.port,
                )
            ],
            kraft_version_feature=KRaftVersionFeature(
                min_supported_version=lowest, max_supported_version=highest
            ),
        )
        for voter in voters
    ]
    control = [
        (
            frames.SNAPSHOT_HEADER,
            SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms),
        ),
        (frames.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=highest)),
        (frames.KRAFT_VOTERS, VotersRecord(version=0, voters=entries)),
    ]
    return _control_batch(0, control, now_ms) + _footer(len(control), now_ms)


def _footer(offset: int, now_ms: int) -> bytes:
    return _control_batch(offset, [(frames.SNAPSHOT_FOOTER, SnapshotFooterRecord())], now_ms)


def _control_batch(base_offset: int, messages: Iterable[tuple[int, Message]], now_ms: int) -> bytes:
    records = [
        Record(
            offset,
            now_ms,
            frames.encode_control_key(number),
            frames.encode_control_value(number, message),
        )
        for offset, (number, message) in enumerate(messages, base_offset)
    ]
    return build_batch(records, leader_epoch=0, control=True)


def _write_first_snapshot(disk: Disk, metadata_dir: str, data: bytes) -> None:
    folder = f"{metadata_dir}/{METADATA_FOLDER}"
    disk.make_dir(folder)
    write_atomically(disk, f"{folder}/{FIRST_SNAPSHOT_FILE}", data)


def _bootstrap_records(
    levels: Mapping[str, int], scram: "Iterable[ScramCredential]"
) -> list[Message]:
    records: list[Message] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    ]
    records += [
        UserScramCredentialRecord(
            name=user.name,
            mechanism=user.mechanism,
            salt=user.salt,
            stored_key=user.stored_key,
            server_key=user.server_key,
            iterations=user.iterations,
        )
        for user in scram
    ]
    return records


def _metadata_kind(has_voters: bool, is_voter: bool) -> str:
    if not has_voters:
        return "metadata"
    return "dynamic metadata voter" if is_voter else "dynamic metadata"


def _check_request(config: BrokerConfig, request: FormatRequest, levels: Mapping[str, int]) -> None:
    controllers = request.controllers
    is_static = bool(config.controller_quorum_voters)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", request.cluster_id):
        raise InvalidInput(
            f"{request.cluster_id!r} is not a valid cluster id: create one with"
            " 'lograft storage random-uuid'"
        )
    if is_static and isinstance(controllers, Standalone | InitialControllers):
        raise InvalidInput(
            "controller.quorum.voters makes the quorum static: for a dynamic quorum replace it by"
            " controller.quorum.bootstrap.servers, otherwise omit --standalone and"
            " --initial-controllers"
        )
    if isinstance(controllers, Standalone) and not config.is_controller:
        raise InvalidInput("You can only use --standalone on a controller")
    if config.is_controller and not is_static and controllers is None:
        raise InvalidInput(
            "Because controller.quorum.voters is not set on this controller, you must specify one"
            " of --standalone, --initial-controllers and --no-initial-controllers"
        )
    is_dynamic = not is_static and controllers is not None
    kraft_version = request.features.get(KRAFT_VERSION, int(is_dynamic))
    if kraft_version != int(is_dynamic):
        raise InvalidInput(
            f"Cannot set kraft.version to {kraft_version}: it is 1 for a dynamic quorum"
            " (--standalone, --initial-controllers, --no-initial-controllers) and 0 for a static"
            " one (controller.quorum.voters)"
        )
    if request.scram and levels[METADATA_VERSION] < SCRAM_SINCE:
        raise InvalidInput(
            f"SCRAM users need metadata.version {METADATA_VERSIONS[SCRAM_SINCE]} or later"
        )


def _voters(
    config: BrokerConfig, request: FormatRequest, randomness: Randomness
) -> tuple[Voter, ...]:
    match request.controllers:
        case InitialControllers(voters):
            return tuple(sorted(voters))
        case Standalone():
            by_name = {e.name: e for e in config.advertised_controller_listeners}
            names = [name for name in config.controller_listener_names if name in by_name]
            address = by_name[names[0]].address
            if not address.host:
                # No other node needs the address of a quorum with one voter.
                address = type(address)("localhost", address.port)
            return (Voter(config.node_id, address, randomness.uuid()),)
        case _:
            return ()


def _formatted_before(
    disk: Disk, config: BrokerConfig, request: FormatRequest
) -> dict[str, MetaProperties]:
    found = read_identities(disk, config)
    for path, meta in found.items():
        if meta.cluster_id != request.cluster_id:
            raise InvalidInput(
                f"{path}/{META_PROPERTIES} belongs to cluster {meta.cluster_id}, not to"
                f" {request.cluster_id}: use the former id, or empty the folder to start a new"
                " cluster"
            )
    if found and not request.ignore_formatted:
        raise InvalidInput(
            f"{next(iter(found))} is already formatted: use --ignore-formatted to keep it and"
            " format only the other log dirs"
        )
    return found


def read_identities(disk: Disk, config: BrokerConfig) -> dict[str, MetaProperties]:
    """Returns the meta.properties of every log dir that has one. Raises InvalidInput if they
    contradict the node's settings or each other."""
    found: dict[str, MetaProperties] = {}
    for path in directories_of(config):
        _reject_file(disk, path)
        meta = read_meta_properties(disk, path) if disk.is_dir(path) else None
        if meta is None:
            continue
        if meta.node_id != config.node_id:
            raise InvalidInput(
                f"{path}/{META_PROPERTIES} belongs to node {meta.node_id} but node.id is"
                f" {config.node_id}: correct node.id or log.dirs, or empty the folder to reuse it"
            )
        for other_path, other in found.items():
            if other.cluster_id != meta.cluster_id:
                raise InvalidInput(
                    f"{path} belongs to cluster {meta.cluster_id} but {other_path} to"
                    f" {other.cluster_id}: all folders in log.dirs must belong to one cluster"
                )
            if other.directory_id is not None and other.directory_id == meta.directory_id:
                raise InvalidInput(
                    f"{path} and {other_path} have the same directory.id: one is a copy of the"
                    " other, remove it from log.dirs"
                )
        found[path] = meta
    return found


def check_identities(disk: Disk, config: BrokerConfig) -> dict[str, MetaProperties]:
    """Checks the log dirs of a node that starts, and returns their meta.properties. An empty or
    missing log dir is rejected, too: its disk may not be mounted, and its partitions would start
    again at offset 0."""
    found = read_identities(disk, config)
    for path in directories_of(config):
        if path in found:
            continue
        if found:
            raise InvalidInput(
                f"no {META_PROPERTIES} found in {path}: mount its disk, or if it is new run"
                " 'lograft storage format --ignore-formatted -t <cluster id> -c <this file>'"
            )
        raise InvalidInput(
            f"{path} is not formatted: run 'lograft storage format -t <cluster id> -c <this file>'"
            " first ('lograft storage random-uuid' creates an id)"
        )
    return found
