"""The names in backticks in pages and docstrings exist: files, functions, settings …"""

import ast
import keyword
import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from lograft.broker.client_series import metric_name
from lograft.cli.commands import app
from lograft.cli.kafka.tools import TOOLS
from lograft.client.metering.names import MetricName
from tests.support.repository import ROOT, tracked_files
from tools.generate_client_metrics import declared_names, kafka_metrics

#: It also describes earlier versions of the project.
CHANGELOG: Final = "CHANGELOG.md"
#: Names that neither the code nor the tests contain, each with the reason.
EXCEPTIONS: Final = {
    "StreamingQueryProgress.json": "a property of Spark",
    "copy_folio_from_iter_atomic": "a function of Linux",
    "dupnum": "of the design notes",
    "fetchOffset": "the first part of two options in Spark's source",
    "kafka_default": "a connection of Airflow",
    "kafkasql-journal": "a topic of Apicurio Registry",
    "keytool": "a program of Java",
    "listener.name.outside.ssl.keystore.location": "a setting of one listener, with its name",
    "lograft-client": "a distribution that decision 0016 does not take",
    "mypy": "a program of Python",
    "page_reporting": "a feature of Linux",
    "perf": "a program of Linux",
    "processing_guarantee": "a parameter of Quix Streams",
    "spark.archives": "a setting of Spark",
    "zkserver": "of the design notes",
}

FENCED_BLOCK: Final = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
QUOTED: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
#: A path, a dotted name, a word with hyphens, an option, a suffix. One letter is a placeholder.
NAME: Final = r"(?:--?|\.)?[A-Za-z_*][\w*]+(?:[./-]+[\w*]+)*/?"
#: The names in an expression that are checked. All others may be examples of values.
CHECKED: Final = re.compile(
    rf"""
    ^ (?: await\ | async\ with\ | with\ | python\ (?: -m\ )? )? ({NAME})  # at the start
    | ({NAME}) \(  # a call
    | (?<! [\w-]) (--[a-z-]+)  # an option
    """,
    re.VERBOSE,
)
#: As in `api/<name>.py`.
PLACEHOLDER: Final = re.compile(r"(?<=[\w/-])<[\w ]+>|<[\w ]+>(?=[\w.-])")
#: As in `broker/partitions/partition.py: append`.
FILE_AND_NAME: Final = re.compile(r"([\w/]+)\.py: (\w+)(?:\(.*\))?")


class Vocabulary(NamedTuple):
    #: Files and folders, each by its full path and by every suffix of it.
    paths: frozenset[str]
    #: Identifiers and whole string constants in the code, without the words of comments and texts.
    words: frozenset[str]
    #: The names in a class, a module or a package, by its name.
    members: dict[str, set[str]]


def code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def strings_in(constant: object) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
        # The constant parts of formatted strings, as in f"hold-until={until_ms}".
        yield constant.rstrip("=-.")
    elif isinstance(constant, tuple | frozenset):
        for item in constant:
            yield from strings_in(item)


def words_of(code: CodeType) -> set[str]:
    """The names and constants of a module, without those inside its functions and classes."""
    variables = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return {code.co_name, *code.co_names, *variables, *strings_in(code.co_consts)}


@cache
def vocabulary() -> Vocabulary:
    paths: set[str] = set()
    words: set[str] = set()
    members: dict[str, set[str]] = defaultdict(set)
    for source in filter(Path.is_file, tracked_files()):
        file = source.relative_to(ROOT)
        for path in (file, *file.parents[:-1]):
            paths.update("/".join(path.parts[start:]) for start in range(len(path.parts)))
        if file.suffix != ".py" or source == Path(__file__):
            continue
        code = compile(source.read_bytes(), source, "exec")
        for each in code_objects(code):
            found = words_of(each)
            words |= found
            for owner in (*each.co_qualname.split("."), *file.with_suffix("").parts):
                members[owner] |= found
    for metric in (*kafka_metrics(), *declared_names()):
        telemetry_name = MetricName(metric.name, metric.group).telemetry_name
        words |= {metric.name, metric.group, *metric.tags, telemetry_name}
        words |= {metric_name(telemetry_name, is_counter=each) for each in (False, True)}
    return Vocabulary(frozenset(paths), frozenset(words), members)


def exists(name: str) -> bool:
    paths, words, _ = vocabulary()
    name = name.rstrip("/")
    if keyword.iskeyword(name) or name in words or name in paths:
        return True
    if name.partition("/")[0] in {
        line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()
    }:
        return True  # a folder that the project creates, such as .venv
    if "*" in name:
        return any(fnmatch(each, name) for each in (*paths, *words))
    if name.endswith("_") and any(word.startswith(name) for word in words):
        return True
    if name.startswith("-"):
        # Typer turns a parameter into an option.
        return name.lstrip("-").replace("-", "_") in words
    return is_dotted_name(name.lstrip("."))


def is_dotted_name(name: str) -> bool:
    """A module, a name in a module or class, an attribute, or a setting named like a field."""
    paths, words, members = vocabulary()
    if name.replace(".", "_") in words or f"{name.replace('.', '/')}.py" in paths:
        return True
    *owners, member = name.removeprefix("self.").split(".")
    if not owners:
        return member in words
    path, owner = "/".join(owners), owners[-1]
    is_module = path in paths or ("/" in path and f"{path}.py" in paths)
    if is_module or owner[:1].isupper():
        return member in members.get(owner, ())
    if member in members.get(owner, ()):
        return True
    # An attribute of a variable, whose class is not known here. Longer names are settings.
    return len(owners) < 3 and {*owners, member} <= words


def find_unknown(quoted: str) -> list[str]:
    """The names in a quoted expression that do not exist."""
    if match := FILE_AND_NAME.fullmatch(quoted):
        path, name = match.groups()
        return [] if name in vocabulary().members.get(path.rpartition("/")[2], ()) else [name]
    quoted = PLACEHOLDER.sub("*", quoted)
    program, *arguments = quoted.partition(" | ")[0].split()
    match program:
        case "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            return [each for each in arguments[:1] if each not in targets]
        case "lograft" if arguments:
            return find_unknown_arguments(arguments)
        case _:
            names = (name for found in CHECKED.findall(quoted) for name in found if name)
            return [name for name in names if not exists(name)]


def find_unknown_arguments(arguments: list[str]) -> list[str]:
    """The quoted commands and options that the command line of lograft does not have."""
    if arguments[0] in TOOLS:
        return []
    command = get_command(app)
    options = {"--help"}
    unknown = []
    for argument in arguments:
        options.update(
            option for each in command.params for option in (*each.opts, *each.secondary_opts)
        )
        name = re.match(r"\[?([a-z-]*)", argument)
        assert name is not None
        if argument.startswith(("--", "[--")):
            unknown += [name[1]] * (name[1] not in options)
        elif isinstance(command, TyperGroup) and name[1] == argument:
            if argument not in command.commands:
                return [*unknown, argument]
            command = command.commands[argument]
    return unknown


def quoted_names() -> Iterator[tuple[str, str]]:
    """Yields each page with its quoted names, and each file of src with the quoted names in its
    docstrings, except expressions, which may be examples."""
    for file in filter(Path.is_file, tracked_files()):
        place = file.relative_to(ROOT).as_posix()
        if file.suffix == ".md" and file.name != CHANGELOG:
            for quoted in QUOTED.findall(FENCED_BLOCK.sub("", file.read_text())):
                yield place, quoted
        elif file.suffix == ".py" and place.startswith("src/"):
            for docstring in docstrings(ast.parse(file.read_text())):
                for quoted in QUOTED.findall(docstring):
                    if re.fullmatch(NAME, quoted):
                        yield place, quoted


def docstrings(module: ast.Module) -> Iterator[str]:
    for node in (module, *module.body):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node, clean=False) or ""


@cache
def unknown_names() -> tuple[tuple[str, str], ...]:
    return tuple((place, name) for place, quoted in quoted_names() for name in find_unknown(quoted))


def test_names_in_the_documentation_exist() -> None:
    assert [(place, name) for place, name in unknown_names() if name not in EXCEPTIONS] == []


def test_the_exceptions_are_needed() -> None:
    assert EXCEPTIONS.keys() - {name for _, name in unknown_names()} == set()


@pytest.mark.parametrize(
    "quoted",
    [
        "broker/partitions/partition.py",
        "tests/scripts/groups",
        "cli/*_commands.py",
        "api/<name>.py",
        "python -m tools.generate_settings",
        "broker/coordinators/coordinator_runtime.py: ask",
        "Partition.wait_committed",
        "wait_committed(end)",
        "lograft.testing.Cluster",
        "self.members.get",
        "lograft_",
        "retention.ms=1000",
        "metadata.max.age.ms",
        "LOGRAFT_TRACE=1",
        "lograft topics create NAME --partitions 3",
        "lograft kafka-topics --list",
        "--group G",
        "make simulate SEED=7",
        "test_only_the_log_sets_its_offsets",
    ],
)
def test_what_exists(quoted: str) -> None:
    assert find_unknown(quoted) == []


@pytest.mark.parametrize(
    ("quoted", "unknown"),
    [
        ("broker/partition.py", "broker/partition.py"),
        ("tests/scripts/teams", "tests/scripts/teams"),
        ("cli/*_orders.py", "cli/*_orders.py"),
        ("python -m tools.generate_orders", "tools.generate_orders"),
        ("broker/coordinators/coordinator_runtime.py: asked", "asked"),
        ("Partition.wait_commited", "Partition.wait_commited"),
        ("wait_commited(end)", "wait_commited"),
        ("lograft.testing.Clusters", "lograft.testing.Clusters"),
        ("retention.millis.max=1000", "retention.millis.max"),
        ("LOGRAFT_TRACES=1", "LOGRAFT_TRACES"),
        ("lograft topics creates NAME", "creates"),
        ("lograft topics create NAME --partition 3", "--partition"),
        ("--no-such-option G", "--no-such-option"),
        ("make simulation", "simulation"),
        ("test_only_the_log_is_good", "test_only_the_log_is_good"),
    ],
)
def test_what_does_not_exist(quoted: str, unknown: str) -> None:
    assert find_unknown(quoted) == [unknown]
