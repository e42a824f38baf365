"""Names of files of `lograft start --secure`, and how `lograft start` without --secure recognizes
its directory."""

from pathlib import Path
from typing import Final

from lograft.storage.log_dirs import META_PROPERTIES

LOG_FOLDER: Final = "log"
STATE_FILE: Final = "node.json"
CLIENT_FILE: Final = "client.properties"


def is_secure(folder: Path) -> bool:
    """Returns whether the folder was formatted by `lograft start --secure`."""
    return (folder / LOG_FOLDER / META_PROPERTIES).exists()
