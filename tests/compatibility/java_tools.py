"""Runs Kafka's own command line tools, many in one JVM (tools/kafka/ToolRunner.java)."""

import base64
import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.compatibility.servers import SMALL_JVM, java_command
from tools.kafka_jars import KAFKA_VERSION, REPOSITORY, ensure_program

RUNNER: Final = REPOSITORY / "tools" / "kafka" / "ToolRunner.java"
ALONE_SECONDS_MAX: Final = 60
PATIENCE_SECONDS: Final = 40.0
#: Packages of the tools of Kafka 4.3.1.
PACKAGES: Final = {
    "ConfigCommand": "kafka.admin",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ConsoleShareConsumer": "org.apache.kafka.tools.consumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
    "MetadataShell": "org.apache.kafka.shell",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign",
    "ShareGroupCommand": "org.apache.kafka.tools.consumer.group",
    "StorageTool": "kafka.tools",
    "StreamsGroupCommand": "org.apache.kafka.tools.streams",
}


@dataclass(frozen=True, slots=True)
class ToolRun:
    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def eventually(ask: Callable[[], ToolRun], is_right: Callable[[str], bool]) -> str:
    """Returns the tool's output once it is as expected; the last output if it never is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        result = ask().text
        if is_right(result) or time.monotonic() > deadline:
            return result


class Background:
    """A tool that runs until it is stopped, and prints its events as lines of JSON."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    @property
    def text(self) -> str:
        return self._log.read_text()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def events(self) -> list[dict[str, Any]]:
        """Returns all complete lines so far."""
        lines = self.text.split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def stop(self) -> list[dict[str, Any]]:
        self._process.terminate()
        try:
            self._process.wait(timeout=ALONE_SECONDS_MAX)
        finally:
            self._process.kill()
        return self.events()


class JavaTools:
    """A JVM that runs tools on request."""

    def __init__(self, folder: Path, version: str = KAFKA_VERSION) -> None:
        ensure_program("javac", package="default-jdk-headless")
        self.version = version
        self._folder = folder
        self._started = 0
        self._errors = (folder / f"java-tools-{version}.log").open("wb")
        self._process = subprocess.Popen(
            [*java_command(SMALL_JVM, version), str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def run(self, tool: str, *arguments: str, stdin: str = "") -> ToolRun:
        """Calls a tool's main(), and returns its output even if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        fields = (self._class_of(tool), stdin, *arguments)
        encoded = (base64.b64encode(field.encode()) for field in fields)
        self._process.stdin.write(b" ".join(encoded) + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        assert len(answer) >= 1, f"the JVM of the tools ended, see {self._errors.name}"
        text = base64.b64decode(answer[1]).decode() if len(answer) > 1 else ""
        return ToolRun(int(answer[0]), text)

    def check(self, tool: str, *arguments: str, stdin: str = "") -> ToolRun:
        """Calls run(); the tool must succeed."""
        done = self.run(tool, *arguments, stdin=stdin)
        assert done.code == 0, f"{tool} {' '.join(arguments)} ended with {done.code}\n{done.text}"
        return done

    def run_alone(self, tool: str, *arguments: str) -> ToolRun:
        """Runs the tool in a separate JVM: for tools that do their last work while the JVM
        exits."""
        done = subprocess.run(
            [*java_command(SMALL_JVM, self.version), self._class_of(tool), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ALONE_SECONDS_MAX,
        )
        return ToolRun(done.returncode, done.stdout)

    def run_until(self, shows: str, tool: str, *arguments: str) -> ToolRun:
        """Runs the tool in a separate JVM, which is stopped when its output matches the regular
        expression: for tools that never exit. Their threads would otherwise write into the output
        of other tools."""
        background = self.start_alone(tool, *arguments)
        deadline = time.monotonic() + ALONE_SECONDS_MAX
        try:
            while not (is_shown := re.search(shows, background.text)) and background.is_running:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        finally:
            background.stop()
        return ToolRun(0 if is_shown else 1, background.text)

    def start_alone(self, tool: str, *arguments: str) -> Background:
        self._started += 1
        command = [*java_command(SMALL_JVM, self.version), self._class_of(tool), *arguments]
        return Background(command, self._folder / f"{tool}-{self._started}.out")

    def _class_of(self, tool: str) -> str:
        if self.version.startswith("3."):
            return f"kafka.tools.{tool}"
        return f"{PACKAGES.get(tool, 'org.apache.kafka.tools')}.{tool}"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
