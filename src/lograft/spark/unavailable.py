"""Replaces `format("lograft")` where a dependency is missing, with an error that names it."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource


def unavailable_source(error: ImportError) -> type[DataSource]:
    message = f"format('lograft') cannot be used: {error}; pip install 'lograft[spark]'"

    class UnavailableSource(DataSource):
        def __init__(self, options: MutableMapping[str, str]) -> None:
            raise ImportError(message)

        @classmethod
        def name(cls) -> str:
            return "lograft"

    return UnavailableSource
