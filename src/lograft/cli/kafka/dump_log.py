"""kafka-dump-log: show what is in the files of a log."""

from collections.abc import Sequence

from lograft.cli.dump_log import DumpOptions, dump_files
from lograft.cli.kafka.tools import Parser


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-dump-log", "Show what is in the files of a log.")
    parser.add_argument("--files", required=True, metavar="F[,F]")
    decoders = {
        "cluster-metadata-decoder": "metadata",
        "offsets-decoder": "offsets",
        "transaction-log-decoder": "transactions",
        "share-group-state-decoder": "shares",
    }
    for flag in (
        *decoders,
        *("print-data-log", "deep-iteration", "skip-record-metadata", "index-sanity-check"),
        "verify-index-only",
    ):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--max-message-size", type=int, default=5 * 1024 * 1024)
    parser.add_argument("--max-bytes", type=int, default=2**31 - 1)
    given = parser.parse_args(list(arguments))
    chosen = [name for flag, name in decoders.items() if getattr(given, flag.replace("-", "_"))]
    if len(chosen) > 1:
        parser.error("choose one decoder at a time")
    options = DumpOptions(
        print_records=given.print_data_log or given.deep_iteration or bool(chosen),
        print_values=given.print_data_log or bool(chosen),
        decoder=chosen[0] if chosen else None,
        skip_record_metadata=given.skip_record_metadata,
        bytes_max=given.max_bytes,
        index_sanity_check=given.index_sanity_check or given.verify_index_only,
    )
    return dump_files(given.files.split(","), options)
