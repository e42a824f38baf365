"""Selects the folder of a replica if a crash interrupted its move to another log dir.

The target of a move is durably written to the source folder (`lograft.moving-to`) before the copy
gets the name of the log, and the source is renamed after that. So a folder with a target is the
replica only if the target has no folder of that name. This must be checked: as long as a log dir is
offline, the replica may be there and may have voted there, and the folder is not used. All
functions block.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from lograft.broker.errors import ReplicaNotMovable
from lograft.broker.logs.log_loading import FoundLog, rename_logs
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.seams import Disk
from lograft.storage.log import Log
from lograft.storage.log_dirs import MOVING_TO, deleted_directory_name, remove_moving_to

#: Maximum number of past log dirs of a replica. The oldest is dropped, and is then not recognized.
PAST_DIRECTORIES_MAX: Final = 100


class Opened(NamedTuple):
    """A log found at startup, or the error if it could not be opened."""

    result: Log | LograftError
    directory: LogDirectory
    found: FoundLog


class Choice(NamedTuple):
    """The folders of one replica."""

    chosen: Opened
    #: Sources of moves that were complete: they are renamed.
    left_behind: tuple[Opened, ...]
    #: Folders that should not exist.
    others: tuple[Opened, ...]


def choose(candidates: Sequence[Opened]) -> Choice:
    arrived = [opened for opened in candidates if opened.found.moving_to is None]
    moving = [opened for opened in candidates if opened.found.moving_to is not None]
    if arrived:
        return Choice(arrived[0], tuple(moving), tuple(arrived[1:]))
    return Choice(moving[0], (), tuple(moving[1:]))


def interrupted_move_error(chosen: Opened, *, sees_all: bool) -> ReplicaNotMovable | None:
    """Returns the error if the folder cannot be used although it is the only one found."""
    if chosen.found.moving_to is None or sees_all:
        return None
    return ReplicaNotMovable(
        f"the move of {chosen.found.path} to another log dir was interrupted, and not all log dirs"
        " are online: start the node with all of them. If the other log dir is lost, delete"
        f" {chosen.found.path} to copy the replica from its leader or, if it is the only replica,"
        f" delete {MOVING_TO} in it"
    )


def settle(disk: Disk, choice: Choice, unique: UUID) -> list[tuple[LogDirectory, str]]:
    """Makes the choice durable; returns the folders that can be removed. Raises DiskFailed."""
    doomed = []
    for opened in choice.left_behind:
        name = deleted_directory_name(opened.found.topic_partition, unique)
        path = f"{opened.directory.path}/{name}"
        rename_logs(disk, opened.directory.path, [(opened.found.path, path)])
        doomed.append((opened.directory, path))
    chosen = choice.chosen
    if chosen.found.moving_to is not None:
        try:
            remove_moving_to(disk, chosen.found.path)
        except OSError as error:
            raise DiskFailed(chosen.directory.path, error) from error
    return doomed


def past_directories(before: Sequence[UUID], source: UUID, target: UUID) -> tuple[UUID, ...]:
    """Returns the past log dirs of a replica after a move."""
    names = dict.fromkeys([*before, source])
    names.pop(target, None)
    return tuple(names)[-PAST_DIRECTORIES_MAX:]
