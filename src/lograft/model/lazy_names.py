"""Names of a package that are imported when somebody asks for them (PEP 562): who imports the
package for one of them does not pay for all."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`; `homes` gives the module of each name."""

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{home}"), name)
        # The next one who asks finds it there.
        setattr(sys.modules[package], name, found)
        return found

    return find
