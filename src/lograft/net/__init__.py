"""Sockets and TLS only: listeners, channels and connections. Handles frames, not messages.

A chain of small parts: `sockets` moves bytes between the kernel and a Receiver, `tls` is an
optional stage in between, `connection` splits the bytes into frames, calls the injected
FrameHandler and sends the responses in the order of the requests, `server` accepts connections
within limits and closes idle ones.

Invariants: responses are sent in the order of the requests; the memory that a peer can occupy is
bounded (incomplete frame, requests in flight, unsent bytes); the tasks of a connection end with it.

Entry points: `sockets.SocketTransport`, `tls.TlsTransport`, `server.Server`.
"""
