"""`lograft dump-log` prints the recorded files line by line like Kafka's DumpLogSegments."""

import os
from pathlib import Path

import pytest

from lograft.cli.dump_log import DumpOptions, dump_file
from tests.golden.kafka_folders import Folder, unpack

INDEXES = ("index", "timeindex", "txnindex")
DECODERS = {
    "__cluster_metadata-0": "metadata",
    "__transaction_state-0": "transactions",
    "__consumer_offsets-0": "offsets",
}


@pytest.fixture(params=["stopped", "killed"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Folder:
    unpacked = unpack(request.param, tmp_path / request.param)
    # The recorded output has names relative to the log dir.
    monkeypatch.chdir(unpacked.data)
    return unpacked


def options_for(name: str) -> DumpOptions:
    is_checkpoint = name.endswith(".checkpoint")
    decoder = DECODERS.get(os.path.dirname(name), "metadata" if is_checkpoint else None)
    if decoder:
        return DumpOptions(print_records=True, print_values=True, decoder=decoder)
    prints = name.endswith(".log")
    return DumpOptions(print_records=prints, print_values=prints)


@pytest.mark.parametrize("suffix", ["log", "checkpoint", "snapshot", *INDEXES])
def test_every_file_is_printed_as_by_kafka(folder: Folder, suffix: str) -> None:
    if suffix in INDEXES and folder.root.name.startswith("killed"):
        return  # preallocated and never trimmed: both tools report an error, in different words
    names = [*folder.files(f"*-0/*.{suffix}"), *folder.files(f"*.{suffix}")]
    assert names
    for name in names:
        problems: list[str] = []
        shown = list(dump_file(name, options_for(name), problems))
        assert shown == expected_lines(folder, name), name
        assert problems == []


def expected_lines(folder: Folder, name: str) -> list[str]:
    """Omits Kafka's final remark that a segment starting above 0 is "non-consecutive"."""
    lines = folder.dump(name)[1:]
    remarks = [index for index, line in enumerate(lines) if line.startswith("Non-consecutive")]
    return lines[: remarks[0]] if remarks else lines
