"""`lograft metadata-shell`: browses the cluster metadata like a file system.

Reads a snapshot (.checkpoint) or a segment of the metadata log (.log) into an image and shows it as
the tree of `metadata_tree`.
"""

import fnmatch
import shlex
import sys
from collections.abc import Iterator
from typing import Final

from lograft.cli.dump_log import BATCH_BYTES_MAX, read_batches
from lograft.cli.metadata_tree import Folder, metadata_tree
from lograft.metadata.image import MetadataImage
from lograft.model.errors import InvalidInput, LograftError
from lograft.model.types import Epoch, Offset
from lograft.wire.batches import check_crc, read_records
from lograft.wire.message import Message
from lograft.wire.record_frames import UnknownRecord, decode_record

HELP: Final = """\
  cat FILE…      print the content of files
  cd [FOLDER]    change the current folder
  exit           leave the shell
  find [FOLDER]  list all files and folders below a folder
  help           show this list
  history [N]    show the last N commands
  ls [PATH…]     list folders
  man COMMAND    describe a command
  pwd            print the current folder
  tree [PATH…]   print all files below a folder with their content
Paths may contain the wildcards * and ?."""
HISTORY_MAX: Final = 1000


def load_tree(path: str) -> Folder:
    image = MetadataImage()
    time_ms = 0
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        for position, header, batch in read_batches(file, size):
            if not check_crc(batch, 0, header.size_bytes):
                raise InvalidInput(
                    f"{path} is corrupt at position {position}: inspect it with 'lograft dump-log'"
                )
            records: list[Message] = []
            if not header.is_control:
                for record in read_records(batch, bytes_max=BATCH_BYTES_MAX):
                    message = decode_record(record.value or b"")
                    if not isinstance(message, UnknownRecord):
                        records.append(message)
            image.apply(
                records, offset=Offset(header.last_offset), epoch=Epoch(header.leader_epoch)
            )
            time_ms = header.max_timestamp
    if image.offset < 0:
        raise InvalidInput(
            f"{path} contains no metadata: specify a .checkpoint or .log file of the metadata log"
        )
    return metadata_tree(image, time_ms=time_ms)


def run_shell(path: str, command: list[str]) -> int:
    shell = Shell(load_tree(path))
    if command:
        return _print(shell.run(command))
    interactive = sys.stdin.isatty()
    if interactive:
        print("Cluster metadata shell; 'help' lists the commands.")
        _enable_completion(shell)
    while not shell.is_done:
        try:
            line = input(">> " if interactive else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            print()
            continue
        _print(shell.run_line(line))
    return 0


def _print(lines: Iterator[str]) -> int:
    """Prints the lines; if the command fails, prints the error to stderr and returns 1."""
    try:
        for line in lines:
            print(line)
    except LograftError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return 1
    return 0


class ShellError(LograftError):
    """A command of the shell failed."""


class Shell:
    def __init__(self, root: Folder) -> None:
        self._root = root
        #: The names on the path from the root; () is the root.
        self.current_folder: tuple[str, ...] = ()
        self.history: list[str] = []
        self.is_done = False

    def run_line(self, line: str) -> Iterator[str]:
        try:
            arguments = shlex.split(line)
        except ValueError as error:
            raise ShellError(f"cannot parse the line: {error}") from None
        if arguments:
            self.history = [*self.history, line.strip()][-HISTORY_MAX:]
            yield from self.run(arguments)

    def run(self, arguments: list[str]) -> Iterator[str]:
        name, *rest = arguments
        commands = {
            "cat": self._cat,
            "cd": self._cd,
            "exit": self._exit,
            "find": self._find,
            "help": lambda _: iter([HELP]),
            "history": self._history,
            "ls": self._ls,
            "man": self._man,
            "pwd": lambda _: iter([_format_path(self.current_folder)]),
            "tree": self._tree,
        }
        if name not in commands:
            raise ShellError(f"unknown command {name!r}: use one of {', '.join(commands)}")
        return commands[name](rest)

    def complete(self, text: str) -> list[str]:
        """Returns the paths that start with the text; folders end in a slash."""
        folder, _, start = text.rpartition("/")
        prefix = text[: len(text) - len(start)]
        try:
            (found,) = self._resolve(folder or ("/" if prefix else "."))
        except (ShellError, ValueError):
            return []
        node = self._node(found)
        if isinstance(node, str):
            return []
        names = sorted(node)
        return [
            f"{prefix}{name}{'' if isinstance(node[name], str) else '/'}"
            for name in names
            if name.startswith(start)
        ]

    # ── paths ────────────────────────────────────────────────────────────────────────────────

    def _node(self, names: tuple[str, ...]) -> str | Folder:
        node: str | Folder = self._root
        for name in names:
            assert isinstance(node, dict), names
            node = node[name]
        return node

    def _resolve(self, path: str) -> list[tuple[str, ...]]:
        """Returns all files and folders that match the path; a wildcard matches within one name."""
        found: list[tuple[str, ...]] = [() if path.startswith("/") else self.current_folder]
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                found = [names[:-1] for names in found]
                continue
            found = [
                (*names, child)
                for names in found
                if isinstance(node := self._node(names), dict)
                for child in _find_matching(node, part)
            ]
        if not found:
            raise ShellError(f"{path}: no such file or folder")
        return found

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def _cat(self, arguments: list[str]) -> Iterator[str]:
        if not arguments:
            raise ShellError("cat: specify a file")
        for path in arguments:
            for names in self._resolve(path):
                node = self._node(names)
                if isinstance(node, dict):
                    raise ShellError(f"cat: {_format_path(names)}: is a folder; use ls")
                yield node

    def _cd(self, arguments: list[str]) -> Iterator[str]:
        target = arguments[0] if arguments else "/"
        names, *others = self._resolve(target)
        if others or isinstance(self._node(names), str):
            raise ShellError(f"cd: {target}: not a folder")
        self.current_folder = names
        return iter(())

    def _exit(self, _: list[str]) -> Iterator[str]:
        self.is_done = True
        return iter(())

    def _find(self, arguments: list[str]) -> Iterator[str]:
        for path in arguments or ["."]:
            for names in self._resolve(path):
                shown = _format_path(names) if path.startswith("/") or "*" in path else path
                yield from _walk(shown, self._node(names))

    def _history(self, arguments: list[str]) -> Iterator[str]:
        if arguments and not arguments[0].isdecimal():
            raise ShellError("history: specify the number of commands to show")
        first = len(self.history) - int(arguments[0]) if arguments else 0
        for number, line in enumerate(self.history):
            if number >= first:
                yield f"{number:5d}  {line}"

    def _ls(self, arguments: list[str]) -> Iterator[str]:
        found = [names for path in arguments or ["."] for names in self._resolve(path)]
        for number, names in enumerate(found):
            node = self._node(names)
            if isinstance(node, str):
                yield names[-1]
                continue
            if len(found) > 1:
                yield f"{'' if number == 0 else chr(10)}{_format_path(names)}:"
            yield from sorted(node)

    def _man(self, arguments: list[str]) -> Iterator[str]:
        for line in HELP.splitlines()[:-1]:
            if arguments and line.split()[0] == arguments[0]:
                yield line.strip()
                return
        raise ShellError("man: specify a command")

    def _tree(self, arguments: list[str]) -> Iterator[str]:
        for path in arguments or ["."]:
            for names in self._resolve(path):
                yield from _format_tree(self._node(names), 0)


def _format_path(names: tuple[str, ...]) -> str:
    return "/" + "/".join(names)


def _find_matching(folder: Folder, pattern: str) -> list[str]:
    if pattern in folder:
        return [pattern]
    return [name for name in sorted(folder) if fnmatch.fnmatchcase(name, pattern)]


def _walk(path: str, node: str | Folder) -> Iterator[str]:
    yield path
    if isinstance(node, dict):
        for name in sorted(node):
            yield from _walk(f"{path.rstrip('/')}/{name}", node[name])


def _format_tree(node: str | Folder, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(node, str):
        yield f"{indent}{node}"
        return
    for name in sorted(node):
        yield f"{indent}{name}:"
        yield from _format_tree(node[name], depth + 1)


def _enable_completion(shell: Shell) -> None:
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        options = shell.complete(text)
        return options[state] if state < len(options) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
