"""Requests between nodes: `Peers` holds the connections, `BrokerLink` reaches any broker and
`ControllerLink` the active controller, in this process or another.

Invariants: a link never retries a request whose outcome is unknown, except where its docstring says
so; versions are negotiated once for each connection.
"""
