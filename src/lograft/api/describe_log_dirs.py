"""DescribeLogDirs, versions 1-5: the log dirs of this broker and the size of each partition in
them.

No topics (null) means every partition. A replica that is being moved is also listed in its
destination, as future replica with its lag. A failed log dir has KAFKA_STORAGE_ERROR. v3: a
top-level error code. v4: total and usable bytes of the volume. v5: cordoned log dirs.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.broker.broker import Broker
from lograft.broker.logs.log_manager import is_cordoned
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API: Final = Api(key=35, versions=range(1, 6), needs=whole_request(CLUSTER_DESCRIBE))


def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker: Broker = context.broker
    requested: set[tuple[str, int]] | None = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [_describe(broker, directory, requested) for directory in broker.logs.directories]
    results += [_build_error_result(path) for path in broker.logs.unusable]
    return DescribeLogDirsResponse(results=results)


def _build_error_result(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)


def _describe(
    broker: Broker, directory: LogDirectory, requested: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if directory.offline:
        return _build_error_result(directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in broker.partitions:
        log = partition.log
        if partition.directory is not directory or log is None:
            continue
        if requested is None or (partition.topic, partition.index) in requested:
            topics.setdefault(partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=log.size_bytes,
                    offset_lag=max(0, partition.high_watermark - log.end_offset),
                )
            )
    for move in broker.moves.moves.values():
        partition, future = move.partition, move.future
        if move.target is not directory or partition.directory is directory:
            continue
        if requested is None or (partition.topic, partition.index) in requested:
            topics.setdefault(partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=0 if future is None else future.size_bytes,
                    offset_lag=move.lag,
                    is_future_key=True,
                )
            )
    result = DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    cordoned = broker.config.cordoned_log_dirs
    result.is_cordoned = is_cordoned(directory.path, cordoned)
    try:
        usage = broker.runtime.disk.usage(directory.path)
        result.total_bytes = usage.total_bytes
        result.usable_bytes = usage.free_bytes
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
