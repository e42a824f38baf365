"""Clusters for tests, of Lograft's users and of its own.

`Cluster`         real nodes in threads of this process, real sockets: for any client
`VirtualCluster`  the same nodes in virtual time, one seed one run: for clients that can be given a
                  `runtime`, as `lograft.client`'s can

Both are there in milliseconds and break by a call: kill, power loss, full disk, cut links, requests
that fail. `lograft.testing.plugin` has fixtures for pytest, which loads it wherever Lograft is
installed: so names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Final

from lograft.model.lazy_names import lazy_names

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


__getattr__ = lazy_names(__name__, _LAZY)
