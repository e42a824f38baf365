"""The HTTP listener of a node: health, metrics and their last hour.

A small Starlette application behind h11, over the same `Transport` seam as every other listener: it
runs on the node's event loop, so it reads the node's state without locks, and the simulator can
run it too. Starlette is imported by a worker thread when the first client connects.

Invariants:

* no request delays the loop: a collection of metrics is taken and written in slices;
* what clients can make the node hold is bounded: connections, header and body sizes, unsent bytes,
  and the time that a client may take. All scrapes that arrive during one collection share it;
* with authentication, every path needs permission except those that `access.py` lists, and without
  it only loopback addresses are accepted;
* no request changes the state of the node.

Entry point: `listener.HttpListener`, which `node.py` owns.
"""
