"""Base64url without padding (RFC 4648), as JSON Web Tokens and Keys are written."""

import base64
import binascii
import re
from typing import Any, Final

_TEXT: Final = re.compile(r"[A-Za-z0-9_-]*")


def decode_base64url(text: Any) -> bytes:
    """Raises ValueError. Padding and characters of another alphabet are not allowed."""
    if not isinstance(text, str) or not _TEXT.fullmatch(text):
        raise ValueError("not base64url")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("not base64url") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        # Two strings must not stand for the same bytes.
        raise ValueError("not base64url")
    return data
