"""Reads the file of lograft.ssl.crl.location: certificate revocation lists in PEM or DER."""

import re
from pathlib import Path
from stat import S_ISREG
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.net.tls_stores import pem_block

SETTING: Final = "lograft.ssl.crl.location"
FILE_BYTES_MAX: Final = 32 << 20
_PEM: Final = re.compile(
    rb"-----BEGIN X509 CRL-----\s.*?-----END X509 CRL-----", re.DOTALL | re.ASCII
)
_DER_SEQUENCE: Final = b"\x30"


def read_revocation_lists(location: str, *, where: str) -> str:
    """Returns the lists of the file in PEM, without anything else that it contains: OpenSSL would
    trust certificates in it. Empty without a location. Raises InvalidConfig."""
    if not location:
        return ""
    try:
        path = Path(location)
        # Reading a pipe or a device could block the loop.
        if not S_ISREG(path.stat().st_mode):
            raise InvalidConfig(f"{where}{SETTING} {location} is not a regular file")
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(
            f"{where}{SETTING} {location} cannot be read: {error.strerror}"
        ) from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidConfig(
            f"{where}{SETTING} {location} is larger than {FILE_BYTES_MAX >> 20} MiB"
        )
    blocks = _PEM.findall(content)
    if blocks:
        return "\n".join(block.decode("ascii", "replace") for block in blocks) + "\n"
    if content.startswith(_DER_SEQUENCE):
        return pem_block("X509 CRL", content)
    raise InvalidConfig(
        f"{where}{SETTING} {location} contains no certificate revocation list in PEM or DER"
    )
