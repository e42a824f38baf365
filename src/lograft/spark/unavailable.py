"""What `format("lograft")` is where something that it needs is not installed: a clear sentence."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource


def unavailable(error: ImportError) -> type[DataSource]:
    sentence = f"format('lograft') cannot be used: {error}; pip install 'lograft[spark]'"

    class UnavailableSource(DataSource):
        def __init__(self, options: MutableMapping[str, str]) -> None:
            raise ImportError(sentence)

        @classmethod
        def name(cls) -> str:
            return "lograft"

    return UnavailableSource
