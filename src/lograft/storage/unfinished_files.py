"""Files left behind by a crash during a deletion or a compaction."""

from typing import Final

from lograft.model.seams import Disk
from lograft.storage.log_dirs import TEMPORARY_SUFFIX
from lograft.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)

INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def tidy(disk: Disk, directory: str) -> list[str]:
    """Completes interrupted deletions and compactions; returns the names of the remaining files.

    `.deleted` files were about to be unlinked, `.cleaned` and `.tmp` files were not complete: all
    are unlinked. A `.log.swap` file is a complete, fsynced result of a compaction: it replaces the
    segments whose offset range it covers.
    """
    names = disk.list_dir(directory)
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.unlink(f"{directory}/{name}")
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if swaps:
        for name in swaps:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                finish_swap(disk, directory, int(name[:20]))
        for name in swaps:
            if disk.exists(f"{directory}/{name}"):
                disk.unlink(f"{directory}/{name}")
    names = disk.list_dir(directory)
    logs = {name[:20] for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        if name.endswith(INDEX_SUFFIXES) and name[:20] not in logs:
            disk.unlink(f"{directory}/{name}")
    return disk.list_dir(directory)


def finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Replaces the segments from which `<base>.log.swap` was written by that file. It can be
    interrupted and repeated at any point: the swap file is renamed last."""
    swap = Segment(disk, directory, base_offset, fresh=False, suffix=SWAP_SUFFIX)
    end = base_offset
    for _, fields in swap.scan():
        end = fields[0] + fields[6] + 1
    for name in reversed(disk.list_dir(directory)):
        if name.endswith(LOG_SUFFIX) and base_offset < int(name[:20]) < end:
            disk.unlink(f"{directory}/{name}")
            disk.fsync_dir(directory)
    stem = f"{directory}/{base_offset:020d}"
    for suffix in INDEX_SUFFIXES:
        if disk.exists(stem + suffix + SWAP_SUFFIX):
            disk.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)
        elif disk.exists(stem + suffix):
            disk.unlink(stem + suffix)
    disk.fsync_dir(directory)
    disk.rename(stem + LOG_SUFFIX + SWAP_SUFFIX, stem + LOG_SUFFIX)
    disk.fsync_dir(directory)
