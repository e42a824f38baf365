"""Sockets and TLS only: listeners, channels, connections. Knows frames, no messages.

A chain of small parts: `sockets` moves bytes between the kernel and a Receiver, `tls` may stand
in between, `connection` cuts frames, calls the injected FrameHandler and sends the answers in the
order of the requests, `server` accepts connections within limits and ends the idle ones.

Invariants: answers leave in request order; what a peer can make us hold is bounded (bytes of an
incomplete frame, answers under way, unsent bytes); the work of a connection ends with it.

Entry points: `sockets.SocketTransport`, `tls.TlsTransport`, `server.Server`.
"""
