"""Lazy imports of a package's names (PEP 562): an import of the package for one of them does not
import the modules of all others."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the package's `__getattr__`; `modules` gives the module of each name."""

    def find(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{module}"), name)
        # Later accesses find it in the package.
        setattr(sys.modules[package], name, value)
        return value

    return find
