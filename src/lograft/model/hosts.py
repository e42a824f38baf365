"""Hosts of addresses."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether the host is a loopback address, or `localhost`; other names are not resolved."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
