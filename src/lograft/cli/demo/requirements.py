"""Checks whether Spark can run on this machine."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from typing import Final

JAVA_VERSION_MIN: Final = 17
_JAVA_VERSION_SECONDS_MAX: Final = 20
#: `openjdk version "17.0.15"`; Java 8 reports "1.8.0_392".
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_missing_for_spark() -> list[str]:
    """Returns a phrase for each missing requirement; an empty list if Spark can run."""
    missing = []
    if any(find_spec(name) is None for name in ("pyspark", "pandas", "pyarrow")):
        missing.append("PySpark is not installed (pip install 'lograft[spark]')")
    java = find_java_problem()
    if java is not None:
        missing.append(java)
    return missing


def find_java_problem() -> str | None:
    """Returns what is wrong with the java command that Spark would run; None if it is usable."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if command is None:
        return f"Java {JAVA_VERSION_MIN} or newer is not installed"
    try:
        result = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_VERSION_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return f"{command} does not run, and Spark needs Java {JAVA_VERSION_MIN} or newer"
    version = _VERSION.search(result.stderr)
    if version is not None and int(version[1]) < JAVA_VERSION_MIN:
        return f"{command} is Java {version[1]}, and Spark needs Java {JAVA_VERSION_MIN} or newer"
    return None
