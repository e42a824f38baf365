"""Reasons for the end of a channel that are logged."""


class HandshakeTimedOut(TimeoutError):
    """The peer connected but did not complete the TLS handshake in time."""
