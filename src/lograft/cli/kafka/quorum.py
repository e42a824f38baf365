"""kafka-metadata-quorum: describes the controller quorum, adds and removes voters."""

import argparse
import sys
from collections.abc import Sequence

from lograft.cli.client_runner import run_admin
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.node_runner import read_config
from lograft.client.admin import Admin, QuorumDescription, QuorumReplica
from lograft.client.errors import ClientError
from lograft.model.errors import InvalidInput
from lograft.model.types import ZERO_UUID
from lograft.model.uuids import uuid_from_text, uuid_to_text
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.storage.log_dirs import read_meta_properties


def run(words: Sequence[str]) -> int:
    parser = Parser(
        "kafka-metadata-quorum", "Describe the controller quorum and change its voters."
    )
    parser.add_connection(controllers=True)
    actions = parser.add_actions()
    describe = actions.add_parser("describe")
    kind = describe.add_mutually_exclusive_group(required=True)
    kind.add_argument("--status", action="store_true")
    kind.add_argument("--replication", action="store_true")
    describe.add_argument("--human-readable", action="store_true")
    add = actions.add_parser("add-controller")
    add.add_argument("--dry-run", action="store_true")
    remove = actions.add_parser("remove-controller")
    remove.add_argument("--controller-id", "-i", type=int, required=True)
    remove.add_argument("--controller-directory-id", "-d", required=True)
    remove.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args(list(words))
    works = {"describe": _describe, "add-controller": _add, "remove-controller": _remove}
    settings = settings_of(parser, arguments)
    if arguments.action == "add-controller":
        # The file contains the new controller's settings, not those of a client.
        settings = {
            name: value for name, value in settings.items() if name.startswith("bootstrap.")
        }
    try:
        run_admin(settings, lambda admin: works[arguments.action](admin, arguments))
    except (ClientError, InvalidInput) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    quorum = await admin.describe_quorum()
    if arguments.replication:
        print("\n".join(replication_lines(quorum, _fetch_times(quorum, arguments.human_readable))))
    else:
        cluster = await admin.describe_cluster()
        print("\n".join(status_lines(quorum, cluster.cluster_id)))


def status_lines(quorum: QuorumDescription, cluster_id: str) -> list[str]:
    leader = next(voter for voter in quorum.voters if voter.node == quorum.leader)
    lag = max(leader.end_offset - voter.end_offset for voter in quorum.voters)
    slowest = min(voter.last_caught_up_ms for voter in quorum.voters)
    if lag == 0:
        lag_ms = 0
    else:
        lag_ms = -1 if slowest < 0 else max(0, leader.last_caught_up_ms - slowest)
    rows = [
        ("ClusterId", cluster_id),
        ("LeaderId", str(quorum.leader)),
        ("LeaderEpoch", str(quorum.leader_epoch)),
        ("HighWatermark", str(quorum.high_watermark)),
        ("MaxFollowerLag", str(lag)),
        ("MaxFollowerLagTimeMs", str(lag_ms)),
        ("CurrentVoters", f"[{', '.join(_node(voter, quorum) for voter in quorum.voters)}]"),
        ("CurrentObservers", f"[{', '.join(_node(voter, quorum) for voter in quorum.observers)}]"),
    ]
    return [f"{name + ':':<24}{value}" for name, value in rows]


def _node(replica: QuorumReplica, quorum: QuorumDescription) -> str:
    text = f'{{"id": {replica.node}'
    if replica.directory != ZERO_UUID:
        text += f', "directoryId": "{uuid_to_text(replica.directory)}"'
    if ends := quorum.addresses.get(replica.node):
        listed = ", ".join(f'"{name}://{address}"' for name, address in ends.items())
        text += f', "endpoints": [{listed}]'
    return text + "}"


def replication_lines(quorum: QuorumDescription, times: dict[int, tuple[str, str]]) -> list[str]:
    leader = next(replica for replica in quorum.voters if replica.node == quorum.leader)
    voters = [replica for replica in quorum.voters if replica is not leader]
    rows = [
        ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp",
         "LastCaughtUpTimestamp", "Status"]
    ]  # fmt: skip
    for status, replicas in (
        ("Leader", [leader]),
        ("Follower", voters),
        ("Observer", quorum.observers),
    ):
        for replica in replicas:
            fetched, caught_up = times[replica.node]
            rows.append(
                [
                    str(replica.node),
                    uuid_to_text(replica.directory),
                    str(replica.end_offset),
                    str(leader.end_offset - replica.end_offset),
                    fetched,
                    caught_up,
                    status,
                ]
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{text:<{width}}\t" for text, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _fetch_times(quorum: QuorumDescription, human: bool) -> dict[int, tuple[str, str]]:
    now_ms = SystemClock().wall_ms()

    def format_timestamp(timestamp_ms: int) -> str:
        if timestamp_ms < 0:
            return "-1" if not human else "-"
        return f"{max(0, now_ms - timestamp_ms)} ms ago" if human else str(timestamp_ms)

    return {
        replica.node: (
            format_timestamp(replica.last_fetch_ms),
            format_timestamp(replica.last_caught_up_ms),
        )
        for replica in (*quorum.voters, *quorum.observers)
    }


async def _add(admin: Admin, arguments: argparse.Namespace) -> None:
    """Adds the controller that a properties file and its formatted log dir describe."""
    if arguments.command_config is None:
        raise InvalidInput("You must specify the configuration file of the controller to be added.")
    config = read_config(arguments.command_config)
    meta = read_meta_properties(RealDisk(), config.metadata_log_dir)
    if meta is None or meta.directory_id is None:
        raise InvalidInput(
            f"{config.metadata_log_dir} is not formatted: run `lograft kafka-storage format`"
        )
    directory = meta.directory_id
    listeners = {
        listener.name: listener.address for listener in config.advertised_controller_listeners
    }
    ends = ", ".join(f"{name}://{address}" for name, address in listeners.items())
    if not arguments.dry_run:
        await admin.add_voter(config.node_id, directory, listeners)
    verb = "DRY RUN of adding" if arguments.dry_run else "Added"
    print(
        f"{verb} controller {config.node_id} with directory id {uuid_to_text(directory)} and"
        f" endpoints: {ends}"
    )


async def _remove(admin: Admin, arguments: argparse.Namespace) -> None:
    directory = uuid_from_text(arguments.controller_directory_id)
    if not arguments.dry_run:
        await admin.remove_voter(arguments.controller_id, directory)
    verb = "DRY RUN of removing" if arguments.dry_run else "Removed"
    print(
        f"{verb} KRaft controller {arguments.controller_id} with directory id"
        f" {arguments.controller_directory_id}"
    )
