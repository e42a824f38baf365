"""The public names of `lograft.client`."""

import subprocess
import sys

import pytest

import lograft.client


def test_all_public_names_can_be_imported() -> None:
    for name in lograft.client.__all__:
        assert getattr(lograft.client, name) is not None, name
    assert set(lograft.client._LAZY) <= set(lograft.client.__all__)
    assert dir(lograft.client) == sorted(lograft.client.__all__)
    with pytest.raises(AttributeError, match="Prodcer"):
        lograft.client.Prodcer  # noqa: B018


def test_clients_are_imported_lazily() -> None:
    """The command line imports errors and values at every start."""
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, lograft.client; print('asyncio' in sys.modules);"
            "lograft.client.Producer; print('asyncio' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.split() == ["False", "True"]
