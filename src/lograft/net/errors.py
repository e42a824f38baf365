"""How a channel can end that is worth a line in the log."""


class HandshakeTimedOut(TimeoutError):
    """The peer connected and did not finish the TLS handshake in time."""
