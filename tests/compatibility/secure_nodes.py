"""A node of `lograft start --secure` in a process of its own."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

LOGRAFT: Final = str(Path(sys.executable).with_name("lograft"))
STOP_SECONDS_MAX: Final = 60


class SecureNode:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: What it printed, and its log.
        self.output = ""
        self.log = ""

    @property
    def password(self) -> str:
        return (self.folder / "admin.password").read_text().strip()

    @property
    def client_file(self) -> Path:
        return self.folder / "client.properties"

    def librdkafka_settings(self) -> dict[str, Any]:
        lines = (self.folder / "librdkafka.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def address(self) -> str:
        return str(self.librdkafka_settings()["bootstrap.servers"])

    @contextmanager
    def started(self, *options: str) -> Iterator["SecureNode"]:
        command = [LOGRAFT, "start", "--secure", "--data", str(self.folder), "--port", "0"]
        log_path = self.folder.with_suffix(".log")
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert process.stdout is not None
            lines = []
            for line in iter(process.stdout.readline, ""):
                lines.append(line)
                if "is listening on" in line:
                    break
            else:
                raise AssertionError(log_path.read_text())
            self.output = "".join(lines)
            yield self
        finally:
            process.send_signal(signal.SIGINT)
            self.output += process.communicate(timeout=STOP_SECONDS_MAX)[0]
            self.log = log_path.read_text()
        assert process.returncode == 0, self.log
