"""Clusters for tests, of Lograft's users and of its own.

`Cluster`         real nodes in threads of this process, real sockets: for any client
`VirtualCluster`  the same nodes in virtual time, one seed one run: for clients that can be given a
                  `runtime`, as `lograft.client`'s can

Both are there in milliseconds and break by a call: kill, power loss, full disk, cut links, requests
that fail. `lograft.testing.plugin` has fixtures for pytest, which loads it wherever Lograft is
installed: so names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lograft.testing.cluster import Cluster
    from lograft.testing.faults import Fault
    from lograft.testing.node_thread import NodeFailed
    from lograft.testing.virtual import TestClient, VirtualCluster

#: The modules of this package that have them.
_LAZY: Final = {
    "Cluster": "cluster",
    "Fault": "faults",
    "NodeFailed": "node_thread",
    "TestClient": "virtual",
    "VirtualCluster": "virtual",
}

__all__ = ["Cluster", "Fault", "NodeFailed", "TestClient", "VirtualCluster"]


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found
