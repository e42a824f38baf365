"""Lograft: a distributed log and message queue that speaks Apache Kafka's wire protocol.

    from lograft import Admin, Consumer, Producer

The clients are imported when their names are first used. The rest of the Python client is in
`lograft.client`.
"""

from typing import TYPE_CHECKING

from lograft.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from lograft.client import Admin, Consumer, Producer

__version__ = "0.1.0"

__all__ = ["Admin", "Consumer", "Producer", "__version__"]

__getattr__ = lazy_names(
    __name__,
    {"Admin": "client.admin", "Consumer": "client.consumer", "Producer": "client.producer"},
)


def __dir__() -> list[str]:
    return sorted(__all__)
