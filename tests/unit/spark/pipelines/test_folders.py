"""Tests of file tables: batches are published atomically, and repeated batches are recognised."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from lograft.spark.pipelines.folders import BatchTable, SnapshotTable


def stage(table: BatchTable | SnapshotTable, name: str, text: str) -> None:
    folder = Path(table.create_staging(name))
    folder.mkdir(parents=True)
    (folder / "part").write_text(text)


def contents(folder: Path) -> list[str]:
    return sorted(file.read_text() for file in folder.glob("batch=*/part"))


def reopen(folder: Path) -> list[str]:
    """Returns the contents after another process has opened the table."""
    BatchTable(str(folder))
    return contents(folder)


def test_repeated_batch_is_recognised(tmp_path: Path) -> None:
    table = BatchTable(str(tmp_path / "table"))
    assert not table.has(0)
    stage(table, "batch-0", "zero")
    assert not table.has(0), "staged is not published"
    table.add(0)
    assert BatchTable(str(tmp_path / "table")).has(0)
    assert not table.has(1)


def test_compacted_batches_are_still_recognised(tmp_path: Path) -> None:
    table = BatchTable(str(tmp_path))
    for number in range(3):
        stage(table, f"batch-{number}", str(number))
        table.add(number)
    stage(table, "compact-2", "012")
    table.replace([0, 1, 2], "compact-2")
    assert contents(tmp_path) == ["012"]
    assert table.has(1)
    assert not table.has(3)


class Crashed(Exception):
    pass


class CrashingFiles:
    """A file system that raises Crashed instead of one of its changes."""

    def __init__(self, files: fs.FileSystem, changes: int) -> None:
        self._files = files
        self._remaining = changes

    def __getattr__(self, name: str) -> Any:
        if name in ("create_dir", "delete_dir", "delete_file", "move"):
            self._remaining -= 1
            if self._remaining < 0:
                raise Crashed
        return getattr(self._files, name)


@pytest.mark.parametrize("changes", range(9))
def test_interrupted_compaction_is_completed_when_the_table_is_opened(
    tmp_path: Path, changes: int
) -> None:
    table = BatchTable(str(tmp_path))
    for number in range(3):
        stage(table, f"batch-{number}", str(number))
        table.add(number)
    stage(table, "compact-2", "012")
    table.write_json({"batches": [0, 1, 2], "staged": "compact-2"}, "_compaction.json")
    table.files = CrashingFiles(table.files, changes)
    with pytest.raises(Crashed) if changes < 7 else nullcontext():
        table.finish_compaction()
    assert reopen(tmp_path) == ["012"]
    assert reopen(tmp_path) == ["012"]
    assert not list(tmp_path.glob("_staging/*"))


def test_only_small_batches_are_compacted(tmp_path: Path) -> None:
    table = BatchTable(str(tmp_path))
    for number, text in enumerate(("1" * 9, "2" * 10, "3", "4")):
        stage(table, f"batch-{number}", text)
        table.add(number)
    assert table.small_batches(10) == [0, 2, 3]


def test_crash_after_the_last_compaction_step_changes_nothing(tmp_path: Path) -> None:
    table = BatchTable(str(tmp_path))
    stage(table, "batch-2", "012")
    table.add(2)
    table.write_json({"batches": [0, 1, 2], "staged": "compact-2"}, "_compaction.json")
    assert BatchTable(str(tmp_path)).batches() == [2]
    assert contents(tmp_path) == ["012"]


def test_old_snapshots_are_removed(tmp_path: Path) -> None:
    table = SnapshotTable(str(tmp_path))
    assert table.current_path() is None
    for version in range(4):
        stage(table, f"v-{version}", str(version))
        table.switch(version)
        assert table.has(version)
    current = table.current_path()
    assert current is not None
    assert (Path(current) / "part").read_text() == "3"
    assert sorted(folder.name for folder in tmp_path.glob("v*")) == ["v2", "v3"]
