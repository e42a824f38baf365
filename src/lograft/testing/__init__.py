"""Clusters inside a test process, for users of Lograft and for its own tests.

`Cluster`         real nodes in threads of this process, with real sockets: for any client
`VirtualCluster`  the same nodes in virtual time, deterministic for a seed: for clients that accept
                  a `runtime`, such as those of `lograft.client`

Both start in milliseconds, and a test injects faults with a method call: crashes, power losses,
full disks, network partitions and failing requests. `lograft.testing.plugin` contains pytest
fixtures. Since pytest loads it wherever Lograft is installed, the names of this package are
imported when they are first used.
"""

from typing import TYPE_CHECKING, Final

from lograft.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from lograft.testing.cluster import Cluster
    from lograft.testing.faults import Fault
    from lograft.testing.node_thread import NodeFailed
    from lograft.testing.virtual import TestClient, VirtualCluster

#: The modules of this package that define the names.
_LAZY: Final = {
    "Cluster": "cluster",
    "Fault": "faults",
    "NodeFailed": "node_thread",
    "TestClient": "virtual",
    "VirtualCluster": "virtual",
}

__all__ = ["Cluster", "Fault", "NodeFailed", "TestClient", "VirtualCluster"]


__getattr__ = lazy_names(__name__, _LAZY)
