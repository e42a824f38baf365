"""Which folder is the replica, where a crash came while one changed its log dir.

The source of a move names its target, durably (`lograft.moving-to`), before the copy gets the name
of the log, and loses its own name after that. So a folder that names a target is the replica only
if the target has no folder of that name. That must be seen: as long as a log dir is offline the
replica may lie there and may have voted there, and the folder is not used. Everything here blocks.
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

#: Names that a replica remembers; the oldest goes first, which only takes a name from it.
PAST_DIRECTORIES_MAX: Final = 100


class Opened(NamedTuple):
    """A log found at start, or why it could not be opened."""

    result: Log | LograftError
    directory: LogDirectory
    found: FoundLog


class Choice(NamedTuple):
    """Of the folders of one replica."""

    chosen: Opened
    #: Sources of moves that had arrived: they lose their names.
    left_behind: tuple[Opened, ...]
    #: Folders that have no reason to be there.
    others: tuple[Opened, ...]


def choose(candidates: Sequence[Opened]) -> Choice:
    arrived = [each for each in candidates if each.found.moving_to is None]
    moving = [each for each in candidates if each.found.moving_to is not None]
    if arrived:
        return Choice(arrived[0], tuple(moving), tuple(arrived[1:]))
    return Choice(moving[0], (), tuple(moving[1:]))


def doubt_of(chosen: Opened, *, sees_all: bool) -> ReplicaNotMovable | None:
    """Why the folder cannot be used although it is the only one."""
    if chosen.found.moving_to is None or sees_all:
        return None
    return ReplicaNotMovable(
        f"{chosen.found.path} was about to move to another log dir when this node stopped, and not"
        " all log dirs are online: start the node with all of them; if the other log dir is lost,"
        f" delete {chosen.found.path} to copy the replica from its leader, or, where it is the"
        f" only replica, delete {MOVING_TO} in it"
    )


def settle(disk: Disk, choice: Choice, unique: UUID) -> list[tuple[LogDirectory, str]]:
    """Makes the choice durable; returns the folders that can be removed. Raises DiskFailed."""
    doomed = []
    for each in choice.left_behind:
        name = deleted_directory_name(each.found.topic_partition, unique)
        path = f"{each.directory.path}/{name}"
        rename_logs(disk, each.directory.path, [(each.found.path, path)])
        doomed.append((each.directory, path))
    chosen = choice.chosen
    if chosen.found.moving_to is not None:
        try:
            remove_moving_to(disk, chosen.found.path)
        except OSError as error:
            raise DiskFailed(chosen.directory.path, error) from error
    return doomed


def past_directories(before: Sequence[UUID], source: UUID, target: UUID) -> tuple[UUID, ...]:
    """The names of a replica after a move."""
    names = dict.fromkeys([*before, source])
    names.pop(target, None)
    return tuple(names)[-PAST_DIRECTORIES_MAX:]
