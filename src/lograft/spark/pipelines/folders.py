"""Tables of plain files that change in whole steps: a micro-batch is in, or it is not.

A batch is written beside the table first and then moved into it by one rename, so readers see all
of it or nothing, and a batch that Spark brings again is known by its number. Works on every
file system that pyarrow knows; where renames are not atomic (object stores), neither is this.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

#: The column that the parts of a table are, for whoever reads it.
BATCH: Final = "batch"
_BATCH: Final = re.compile(rf"{BATCH}=(\d+)$")
_VERSION: Final = re.compile(r"v(\d+)$")
#: Names that begin so are not part of a table for Spark.
_STAGING: Final = "_staging"
_COMPACTION: Final = "_compaction.json"
#: What a compaction has replaced, until it is deleted.
_REPLACED: Final = "replaced"
#: Snapshots that are kept: who reads the last but one is not cut off.
_VERSIONS_KEPT: Final = 2


class Folder:
    def __init__(self, place: str) -> None:
        uri = place if "://" in place else Path(place).absolute().as_uri()
        self.files, self.root = fs.FileSystem.from_uri(uri)
        self.place = place.rstrip("/")
        self.files.create_dir(self.root, recursive=True)

    def path(self, *names: str) -> str:
        """As Spark takes it."""
        return "/".join((self.place, *names))

    def inner(self, *names: str) -> str:
        """As the file system takes it."""
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
        """Whole or not at all."""
        beside = (*names[:-1], names[-1] + ".new")
        with self.files.open_output_stream(self.inner(*beside)) as file:
            file.write(json.dumps(value).encode())
        self.files.move(self.inner(*beside), self.inner(*names))

    def names(self, *inside: str) -> list[str]:
        selector = fs.FileSelector(self.inner(*inside), allow_not_found=True)
        return sorted(one.base_name for one in self.files.get_file_info(selector))

    def staging(self, name: str) -> str:
        """An empty place to write to, as Spark takes it."""
        self.remove(_STAGING, name)
        return self.path(_STAGING, name)

    def publish(self, staged: str, *target: str) -> None:
        self.remove(*target)
        self.files.move(self.inner(_STAGING, staged), self.inner(*target))


class BatchTable(Folder):
    """A table to which batches are added, each a part `batch=N` of it."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.finish_compaction()

    @staticmethod
    def part(batch_id: int) -> str:
        return f"{BATCH}={batch_id}"

    def batches(self) -> list[int]:
        found = (_BATCH.match(name) for name in self.names())
        return sorted(int(one[1]) for one in found if one is not None)

    def has(self, batch_id: int) -> bool:
        """Batches come in order, and those that were put together have the last one's number."""
        batches = self.batches()
        return bool(batches) and batch_id <= batches[-1]

    def add(self, batch_id: int) -> None:
        """What was staged as `batch-N` becomes part of the table."""
        self.publish(f"batch-{batch_id}", self.part(batch_id))

    # ── putting small files together ─────────────────────────────────────────────────────────

    def small_batches(self, bytes_max: int) -> list[int]:
        """Those with fewer bytes: the others are not worth writing again."""
        return [batch_id for batch_id in self.batches() if self._size(batch_id) < bytes_max]

    def has_files(self, batch_id: int) -> bool:
        """One whose records were all dead letters has none."""
        return any(one.extension == "parquet" for one in self._inside(batch_id))

    def _size(self, batch_id: int) -> int:
        return sum(one.size or 0 for one in self._inside(batch_id))

    def _inside(self, batch_id: int) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self.inner(self.part(batch_id)), recursive=True)
        return list(self.files.get_file_info(selector))

    def replace(self, batches: list[int], staged: str) -> None:
        """What was staged takes the place of some batches. The intention is written down first: a
        crash in the middle is finished by whoever opens the table next."""
        self.write_json({"batches": batches, "staged": staged}, _COMPACTION)
        self.finish_compaction()

    def finish_compaction(self) -> None:
        intended = self.read_json(_COMPACTION)
        if intended is None:
            return
        batches, staged = intended["batches"], intended["staged"]
        if self.exists(_STAGING, staged):
            # Renames only: who lists the table in between misses some of it, so it is not long.
            self.files.create_dir(self.inner(_STAGING, _REPLACED), recursive=True)
            for batch_id in batches:
                name = self.part(batch_id)
                if self.exists(name):
                    self.files.move(self.inner(name), self.inner(_STAGING, _REPLACED, name))
            self.publish(staged, self.part(batches[-1]))
        self.remove(_STAGING, _REPLACED)
        self.files.delete_file(self.inner(_COMPACTION))


class SnapshotTable(Folder):
    """A table that is written anew with each batch; `_current.json` names the one that counts."""

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
        """What was staged as `v-N` is the table from now on."""
        self.publish(f"v-{version}", f"v{version}")
        self.write_json({"version": version}, "_current.json")
        found = (_VERSION.match(name) for name in self.names())
        old = sorted(int(one[1]) for one in found if one is not None)[:-_VERSIONS_KEPT]
        for one in old:
            self.remove(f"v{one}")
