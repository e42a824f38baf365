"""kafka-dump-log: prints the contents of log segments, indexes and snapshots."""

from collections.abc import Sequence

from lograft.cli.dump_log import DumpOptions, dump_files
from lograft.cli.kafka.tools import Parser


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-dump-log", "Print the contents of log segments, indexes and snapshots.")
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
    arguments = parser.parse_args(list(words))
    chosen = [name for flag, name in decoders.items() if getattr(arguments, flag.replace("-", "_"))]
    if len(chosen) > 1:
        parser.error("specify at most one decoder")
    options = DumpOptions(
        print_records=arguments.print_data_log or arguments.deep_iteration or bool(chosen),
        print_values=arguments.print_data_log or bool(chosen),
        decoder=chosen[0] if chosen else None,
        skip_record_metadata=arguments.skip_record_metadata,
        bytes_max=arguments.max_bytes,
        index_sanity_check=arguments.index_sanity_check or arguments.verify_index_only,
    )
    return dump_files(arguments.files.split(","), options)
