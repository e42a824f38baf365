"""A TLS handshake of two contexts in memory."""

import ssl
from typing import NamedTuple


class Negotiated(NamedTuple):
    version: str
    #: OpenSSL's name.
    suite: str


def negotiate(server: ssl.SSLContext, client: ssl.SSLContext) -> Negotiated:
    """Raises the error of the side that ends the handshake first."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    connecting = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    unfinished = [connecting, accepting]
    while unfinished:
        for side in list(unfinished):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            unfinished.remove(side)
    version, suite = connecting.version(), connecting.cipher()
    assert version is not None
    assert suite is not None
    return Negotiated(version, suite[0])
