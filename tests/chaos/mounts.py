"""File systems for tests: one with a limited size, one that can lose power.

Both need root and mount(8); without them, tests are skipped with the reason.
"""

import ctypes
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

IMAGE_BYTES: Final = 192 << 20
SYNC_FILE_RANGE_WRITE: Final = 2
COPY_ATTEMPTS_MAX: Final = 200


def run(*command: str | Path) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def mount_or_skip(*arguments: str | Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    if shutil.which("mkfs.ext4") is None or shutil.which("losetup") is None:
        pytest.skip("needs mount, losetup and mkfs.ext4")
    try:
        run("mount", *arguments)
    except OSError as error:
        pytest.skip(f"mount is not permitted on this machine: {error}")


@contextmanager
def tmpfs(path: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mounts a tmpfs with a limited size; `mount -o remount` can change its options."""
    path.mkdir(parents=True, exist_ok=True)
    mount_or_skip("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", path)
    try:
        yield path
    finally:
        run("umount", "--lazy", path)


class LoopDisk:
    """An ext4 file system in a file. A power loss discards what the kernel has not written to the
    file: the file is copied at that moment, and the copy is mounted instead. The file system then
    replays its journal as after any crash."""

    def __init__(self, folder: Path, point: Path) -> None:
        self._folder = folder
        self.point = point
        self._image = folder / "disk-0.img"
        self._losses = 0
        folder.mkdir(parents=True, exist_ok=True)
        point.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        # Initializes everything now, so that only the node causes later writes.
        layout = "lazy_itable_init=0,lazy_journal_init=0"
        run("mkfs.ext4", "-q", "-F", "-J", "size=8", "-E", layout, self._image)

    def mount(self, options: str) -> None:
        mount_or_skip("-o", f"loop,{options}", self._image, self.point)

    def unmount(self) -> None:
        run("umount", "--lazy", self.point)

    def repair(self) -> None:
        """Checks the file system, like a machine does before it mounts."""
        subprocess.run(["e2fsck", "-p", "-f", str(self._image)], capture_output=True)

    def lose_power(self, options: str) -> None:
        """Mounts the state that was on the disk. The node must be dead already."""
        self._losses += 1
        image = self._folder / f"disk-{self._losses}.img"
        self._copy_quiet(image)
        self.unmount()
        self._image.unlink()
        self._image = image
        self.mount(options)

    def write_back_some(self, chance: random.Random, paths: Sequence[Path]) -> None:
        """Makes the kernel write some dirty pages of some files, and sometimes its journal, as it
        may do at any time."""
        libc = ctypes.CDLL(None, use_errno=True)
        for path in paths:
            if chance.random() < 0.3:
                try:
                    file = os.open(path, os.O_RDONLY)
                except FileNotFoundError:
                    continue  # deleted in the meantime
                try:
                    start = chance.randrange(1 << 18) if chance.random() < 0.5 else 0
                    libc.sync_file_range(
                        file, ctypes.c_int64(start), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE
                    )
                finally:
                    os.close(file)
        if chance.random() < 0.5:
            with (self.point / "journal-commit").open("wb") as journal_file:
                os.fsync(journal_file)

    def _copy_quiet(self, image: Path) -> None:
        """Copies the image while no writes happen, so that the copy is the state of one instant."""
        device = Path("/sys/block") / Path(self._device()).name
        for _attempt in range(COPY_ATTEMPTS_MAX):
            before = (device / "stat").read_text().split()
            run("cp", "--sparse=always", self._image, image)
            after = (device / "stat").read_text().split()
            # Fields 4 to 7 count writes, field 8 requests in flight.
            if before[4:8] == after[4:8] and before[8] == after[8] == "0":
                return
            time.sleep(0.02)
        raise OSError(f"{device} is never idle")

    def _device(self) -> str:
        return run("findmnt", "--noheadings", "--output", "SOURCE", self.point).strip()
