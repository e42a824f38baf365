"""Clusters for tests, of Lograft's users and of its own.

`Cluster`         real nodes in threads of this process, real sockets: for any client
`VirtualCluster`  the same nodes in virtual time, one seed one run: for clients that can be given a
                  `runtime`, as `lograft.client`'s can

Both are there in milliseconds and break by a call: kill, power loss, full disk, cut links, requests
that fail. `lograft.testing.plugin` has fixtures for pytest.
"""

from lograft.testing.cluster import Cluster
from lograft.testing.faults import Fault
from lograft.testing.node_thread import NodeFailed
from lograft.testing.virtual import TestClient, VirtualCluster

__all__ = ["Cluster", "Fault", "NodeFailed", "TestClient", "VirtualCluster"]
