"""`kafka_files.tar.gz` was written by Apache Kafka 4.3.1; `kafka_output.json.gz` contains the
output of its DumpLogSegments and MetadataShell for these files."""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lograft.cli.commands import app
from lograft.cli.dump_log import DumpOptions, dump_files
from lograft.wire.batches import Record, build_batch

GOLDEN = Path(__file__).parents[2] / "golden" / "dumps"
CASES: list[dict[str, Any]] = json.loads(
    gzip.decompress((GOLDEN / "kafka_output.json.gz").read_bytes())
)
SEGMENT = "t-0/00000000000000000030"


@pytest.fixture
def kafka_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(GOLDEN / "kafka_files.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["arguments"])[:80])
def test_output_equals_that_of_kafkas_tools(
    case: dict[str, Any], kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = app(case["arguments"], standalone_mode=False)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert code == 0
    assert shown.out == case["output"]


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def dump(path: str, options: DumpOptions | None = None) -> int:
    return dump_files([path], options or DumpOptions())


def test_a_damaged_batch_is_shown_as_invalid(
    kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(kafka_files / f"{SEGMENT}.log", 100)
    dump(f"{SEGMENT}.log")
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("isvalid: true") for line in lines[2:5]] == [True, False, True]


def test_invalid_bytes_at_the_end_are_counted(
    kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = kafka_files / f"{SEGMENT}.log"
    log.write_bytes(log.read_bytes()[:-5])
    assert dump(f"{SEGMENT}.log") == 1
    assert "Found 215 invalid bytes at the end of 00000000000000000030.log" in (
        capsys.readouterr().err
    )


def test_index_and_log_are_compared(kafka_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(kafka_files / f"{SEGMENT}.index", 3)
    assert dump(f"{SEGMENT}.index") == 1
    assert capsys.readouterr().err.splitlines() == [
        f"Mismatches in :{SEGMENT}.index",
        "  Index offset: 34, log offset: 35",
    ]
    damage(kafka_files / f"{SEGMENT}.timeindex", 7)
    assert dump(f"{SEGMENT}.timeindex") == 1
    assert "Found timestamp mismatch" in capsys.readouterr().err


def test_an_index_out_of_order_is_reported(
    kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = kafka_files / f"{SEGMENT}.index"
    data = index.read_bytes()
    index.write_bytes(data[8:16] + data[:8] + data[16:])
    assert dump(f"{SEGMENT}.index", DumpOptions(index_sanity_check=True)) == 1
    assert "its entries are not in ascending order" in capsys.readouterr().err


def test_the_preallocated_rest_of_an_index_is_not_shown(
    kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = kafka_files / f"{SEGMENT}.index"
    dump(f"{SEGMENT}.index")
    before = capsys.readouterr().out
    index.write_bytes(index.read_bytes() + bytes(80))
    assert dump(f"{SEGMENT}.index") == 0
    assert capsys.readouterr().out == before


def test_gaps_of_compaction_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    records = [Record(offset, 5, b"k", None) for offset in (0, 1, 7)]
    path.write_bytes(build_batch(records, last_offset=9, delete_horizon_ms=77))
    assert dump(str(path), DumpOptions(print_records=True)) == 0
    shown = capsys.readouterr().out
    assert "deleteHorizonMs: OptionalLong[77]" in shown
    assert shown.endswith("  1 is followed by 7\n")


def test_unknown_and_invalid_files_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.snapshot").write_bytes(b"\x00\x09garbage")
    (tmp_path / "x.txt").write_bytes(b"")
    assert dump_files([str(tmp_path / "x.txt"), str(tmp_path / "x.snapshot")], DumpOptions()) == 1
    assert "Ignoring unknown file" in capsys.readouterr().err


def test_garbage_never_causes_a_stack_trace(
    kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = kafka_files / "__consumer_offsets-0/00000000000000000000.log"
    original = log.read_bytes()
    options = DumpOptions(print_records=True, print_values=True, decoder="metadata")
    for position in range(0, len(original), 37):
        log.write_bytes(original)
        damage(log, position)
        dump(str(log), options)
    capsys.readouterr()
