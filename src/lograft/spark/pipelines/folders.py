"""Tables of plain files to which micro-batches are added atomically.

A batch is written to a staging folder and moved into the table by one rename, so readers see all of
it or none of it, and a repeated batch is recognised by its ID. Works on every file system that
pyarrow supports, but is atomic only where renames are (not in object stores).
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

#: Partition column of a table: the batch ID.
BATCH: Final = "batch"
_BATCH: Final = re.compile(rf"{BATCH}=(\d+)$")
_VERSION: Final = re.compile(r"v(\d+)$")
#: Spark ignores names that start with an underscore.
_STAGING: Final = "_staging"
_COMPACTION: Final = "_compaction.json"
#: Batches replaced by a compaction, until they are deleted.
_REPLACED: Final = "replaced"
#: Snapshots to keep, so that readers of the previous snapshot can finish.
_VERSIONS_KEPT: Final = 2


class Folder:
    """A folder on any file system that pyarrow supports; created if it does not exist."""

    def __init__(self, place: str) -> None:
        uri = place if "://" in place else Path(place).absolute().as_uri()
        self.files, self.root = fs.FileSystem.from_uri(uri)
        self.place = place.rstrip("/")
        self.files.create_dir(self.root, recursive=True)

    def path(self, *names: str) -> str:
        """Returns a path for Spark."""
        return "/".join((self.place, *names))

    def inner(self, *names: str) -> str:
        """Returns a path for `files`."""
        return "/".join((self.root, *names))

    def exists(self, *names: str) -> bool:
        found = self.files.get_file_info(self.inner(*names))
        return bool(found.type != fs.FileType.NotFound)

    def remove(self, *names: str) -> None:
        if self.exists(*names):
            self.files.delete_dir(self.inner(*names))

    def read_json(self, *names: str) -> Any:
        if not self.exists(*names):
            return None
        with self.files.open_input_stream(self.inner(*names)) as file:
            return json.loads(file.read())

    def write_json(self, value: Any, *names: str) -> None:
        """Replaces a file atomically."""
        temporary = (*names[:-1], names[-1] + ".new")
        with self.files.open_output_stream(self.inner(*temporary)) as file:
            file.write(json.dumps(value).encode())
        self.files.move(self.inner(*temporary), self.inner(*names))

    def names(self, *inside: str) -> list[str]:
        selector = fs.FileSelector(self.inner(*inside), allow_not_found=True)
        return sorted(file.base_name for file in self.files.get_file_info(selector))

    def create_staging(self, name: str) -> str:
        """Returns the path of an empty staging folder, for Spark."""
        self.remove(_STAGING, name)
        return self.path(_STAGING, name)

    def publish(self, staged: str, *target: str) -> None:
        self.remove(*target)
        self.files.move(self.inner(_STAGING, staged), self.inner(*target))


class BatchTable(Folder):
    """A table to which batches are added, each in a partition `batch=N`."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.finish_compaction()

    @staticmethod
    def part(batch_id: int) -> str:
        return f"{BATCH}={batch_id}"

    def batches(self) -> list[int]:
        found = (_BATCH.match(name) for name in self.names())
        return sorted(int(match[1]) for match in found if match is not None)

    def has(self, batch_id: int) -> bool:
        """Returns whether the batch was added. Batches are added in order, and compacted batches
        have the ID of the last of them."""
        batches = self.batches()
        return bool(batches) and batch_id <= batches[-1]

    def add(self, batch_id: int) -> None:
        """Adds the batch staged as `batch-N` to the table."""
        self.publish(f"batch-{batch_id}", self.part(batch_id))

    # ── compaction ───────────────────────────────────────────────────────────────────────────

    def small_batches(self, bytes_max: int) -> list[int]:
        """Returns the batches below `bytes_max`; larger ones are not worth rewriting."""
        return [batch_id for batch_id in self.batches() if self._size(batch_id) < bytes_max]

    def has_files(self, batch_id: int) -> bool:
        """Returns whether the batch has data; a batch of dead letters only has none."""
        return any(file.extension == "parquet" for file in self._inside(batch_id))

    def _size(self, batch_id: int) -> int:
        return sum(file.size or 0 for file in self._inside(batch_id))

    def _inside(self, batch_id: int) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self.inner(self.part(batch_id)), recursive=True)
        return list(self.files.get_file_info(selector))

    def replace(self, batches: list[int], staged: str) -> None:
        """Replaces batches with the staged one. The intention is stored first, so that the next
        process that opens the table completes an interrupted replacement."""
        self.write_json({"batches": batches, "staged": staged}, _COMPACTION)
        self.finish_compaction()

    def finish_compaction(self) -> None:
        intended = self.read_json(_COMPACTION)
        if intended is None:
            return
        batches, staged = intended["batches"], intended["staged"]
        if self.exists(_STAGING, staged):
            # Readers that list the table in between miss batches, so there are only renames here.
            self.files.create_dir(self.inner(_STAGING, _REPLACED), recursive=True)
            for batch_id in batches:
                name = self.part(batch_id)
                if self.exists(name):
                    self.files.move(self.inner(name), self.inner(_STAGING, _REPLACED, name))
            self.publish(staged, self.part(batches[-1]))
        self.remove(_STAGING, _REPLACED)
        self.files.delete_file(self.inner(_COMPACTION))


class SnapshotTable(Folder):
    """A table that every batch rewrites; `_current.json` names the current snapshot."""

    def version(self) -> int | None:
        current = self.read_json("_current.json")
        return None if current is None else int(current["version"])

    def has(self, batch_id: int) -> bool:
        version = self.version()
        return version is not None and batch_id <= version

    def current_path(self) -> str | None:
        version = self.version()
        return None if version is None else self.path(f"v{version}")

    def switch(self, version: int) -> None:
        """Makes the snapshot staged as `v-N` the current one."""
        self.publish(f"v-{version}", f"v{version}")
        self.write_json({"version": version}, "_current.json")
        found = (_VERSION.match(name) for name in self.names())
        versions = sorted(int(match[1]) for match in found if match is not None)
        for old in versions[:-_VERSIONS_KEPT]:
            self.remove(f"v{old}")
