"""The names and addresses at which clients reach this machine."""

import re
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from lograft.model.errors import InvalidInput

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
#: Addresses for documentation: a datagram socket that is connected to one has the address of the
#: interface of the default route. Nothing is sent.
_REMOTE_ADDRESSES: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def check_host(text: str) -> str:
    """Returns a host name or an IP address without brackets. Raises InvalidInput."""
    host = text.strip().removeprefix("[").removesuffix("]")
    try:
        address = ip_address(host)
    except ValueError:
        if is_host_name(host):
            return host
    else:
        if not address.is_unspecified and not address.is_multicast:
            return str(address)
    raise InvalidInput(
        f"--host {text}: specify the name or IP address, without a port, at which clients"
        " reach this machine"
    )


def is_host_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def own_host() -> str:
    """Returns the name of this machine if it can be resolved here, or else an address of it."""
    name = socket.gethostname()
    if is_host_name(name) and list(_resolve(name)):
        return name
    return next(_default_addresses(), LOCAL_HOSTS[0])


def own_hosts() -> list[str]:
    """Returns the name and the addresses of this machine."""
    name = socket.gethostname()
    names = [name] if is_host_name(name) else []
    return [*names, *_resolve(name), *_default_addresses()]


def _resolve(name: str) -> Iterator[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    for *_, address in found:
        # Addresses with a scope are valid on this machine only.
        if "%" not in str(address[0]):
            yield str(address[0])


def _default_addresses() -> Iterator[str]:
    for family, remote in _REMOTE_ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((remote, 9))
                yield str(probe.getsockname()[0])
        except OSError:
            continue
