"""Record batches of several partitions as one table."""

from collections.abc import Sequence

import pyarrow as pa

from lograft.client.columns.decoder import SCHEMA, SCHEMA_WITH_HEADERS


def joined(batches: Sequence[pa.RecordBatch], *, with_headers: bool) -> pa.Table:
    schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
    return pa.Table.from_batches(batches, schema=schema)
