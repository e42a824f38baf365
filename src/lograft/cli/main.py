"""Entry point of the command `lograft`; maps errors to messages and exit codes."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from typing import Final, NoReturn

from lograft.cli.interrupts import EXIT_CODE_BASE, Interrupted

#: What a client-only installation does not have (docs/decisions/0016-one-distribution.md).
_TERMINAL_LIBRARIES: Final = ("typer", "rich")


def main() -> None:
    _open_standard_streams()
    # During imports nothing catches KeyboardInterrupt, so Ctrl-C would print a stack trace: until
    # the handlers below are in place, the signal terminates the process.
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    run = _choose_command(sys.argv[1:])

    try:
        signal.signal(signal.SIGINT, interrupt)
        if isinstance(sys.stdout, TextIOWrapper):
            # A record with a character that the terminal cannot show must not stop the output.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            run()
        finally:
            # Flush here: an error in Python's flush at exit would print a traceback.
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE_BASE + signal.SIGINT)
    except Interrupted as interrupted:
        sys.exit(interrupted.exit_code)
    except BrokenPipeError:
        _exit_on_broken_pipe()
    except Exception as error:
        if os.environ.get("LOGRAFT_TRACE"):
            raise
        print(f"lograft: {error_message(error)}", file=sys.stderr)
        sys.exit(exit_code(error))


def _open_standard_streams() -> None:
    """Opens standard streams that the parent process has closed (`>&-`) on /dev/null. Otherwise the
    next file or socket would get their descriptors, and Python has no stream to write to."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(descriptor)
        except OSError:
            # os.open returns the lowest free descriptor: this one, as those below it are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        stream = open(os.devnull, "w" if descriptor else "r", encoding="utf-8")  # noqa: SIM115
        setattr(sys, name, stream)


def _choose_command(arguments: list[str]) -> Callable[[], None]:
    if len(arguments) == 2 and arguments[0] == "server" and not arguments[1].startswith("-"):
        # Without importing the parser, a node starts in a fifth less time.
        from lograft.cli.node_runner import serve_file

        return partial(serve_file, arguments[1])
    if arguments and arguments[0].startswith("kafka-"):
        from lograft.cli.kafka.tools import TOOLS, run_tool

        name = arguments[0].removesuffix(".sh")
        if name in TOOLS:
            return partial(run_tool, name, arguments[1:])
    try:
        from lograft.cli.commands import app
    except ModuleNotFoundError as error:
        if error.name not in _TERMINAL_LIBRARIES:
            raise
        sys.exit(
            "lograft: the command line needs"
            f" {' and '.join(_TERMINAL_LIBRARIES)}, which a client-only installation does not have"
            " (pip install lograft)"
        )
    return app


def _exit_on_broken_pipe() -> NoReturn:
    """The reader of the output has exited (`lograft … | head`), so exit quietly. The exit code is
    the same as that of Python and of the commands that typer runs."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # Otherwise Python's flush at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(1)


def exit_code(error: Exception) -> int:
    """Returns 3 if no server could be reached, otherwise 1 (usage errors exit with 2)."""
    from lograft.client.errors import ConnectionFailed

    return 3 if isinstance(error, ConnectionFailed) else 1


def error_message(error: Exception) -> str:
    from lograft.model.errors import LograftError

    if isinstance(error, LograftError):
        return str(error)
    if isinstance(error, OSError):
        path = f"{error.filename}: " if error.filename is not None else ""
        return f"{path}{error.strerror or error}"
    return (
        f"unexpected {type(error).__name__}: {error}; this is a bug: please report it with the"
        " stack trace that LOGRAFT_TRACE=1 prints"
    )


if __name__ == "__main__":
    main()
