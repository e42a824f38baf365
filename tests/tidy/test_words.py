"""Words and names that must not come back, each with what to write instead.

STYLE.md asks for the English of Kafka's documentation, with the actor and Kafka's term. The words
of these tables hide the actor, or are no longer in use. `WORDS` applies to all texts of the
product: code, comments, messages and pages. `NAMES` applies to all variables, arguments, functions
and classes of the repository, `PRODUCT_NAMES` to those outside of tests, `MODULES` to file names.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT, tracked_files

WORDS: Final = {
    r"anybody": "the actor: any client, any broker",
    r"anew": "again; or the verb with re-: recompute, rebuild",
    r"beforehand": "before …, in advance",
    r"for ever": "forever, permanently",
    r"hence": "so, therefore",
    r"hears? (?:of|from)": "receives",
    r"go(?:es)? on": "continue",
    r"heard": "received",
    r"heirs?": "the new coordinator, the next leader",
    r"in one go": "at once, in one call",
    r"newcomers?": "the role: new member, new voter, new user",
    r"nobody": "the actor: no client, no broker; or the passive",
    r"now and then": "at intervals, sometimes",
    r"shall": "must, will",
    r"somebody": "the actor: a client, another broker",
    r"spared": "skipped, avoided",
    r"the word of": "the response of, the confirmation by",
    r"thereby": "by this",
    r"told": "the actor and the verb: the controller sends …, the broker is notified of …",
    r"comes? true": "is executed, is applied",
    r"what is more": "also",
    r"whoever": "the actor: the broker that …, a client that …",
    r"whom": "the actor: the broker to which …",
    r"wish(?:es|ed)?": "effects, desired modes, requests",
    r"word for word": "unchanged, with the same output",
}
NAMES: Final = {
    "heard": "responses, received",
    "lets_next": "allows_pipelining",
    "made": "what was created: topic, partition",
    "one": "a noun: partition, member, record",
    "said": "output, response, message",
    "shall": "must_…, is_…",
    "somebody": "the role: leader, member",
    "spared": "skipped",
    "told": "the content: response, offsets, error",
    "wish": "the desired state: mode, action",
}
PRODUCT_NAMES: Final = NAMES | {"word": "what it contains: verification, item, suffix"}
MODULES: Final = {
    "doubts": "suspect_brokers",
    "faces": "the interface: blocking, sync",
    "foreign_groups": "unsupported_groups",
    "hosted_members": "consumer_classic_members",
    "opened": "lifecycle",
    "room": "buffer_queue",
    "words": "the subject",
}
#: A past participle as the name of a function does not say whether it returns, asks or changes.
PARTICIPLE: Final = re.compile(
    r"[a-z]+ed|begun|broken|chosen|driven|drawn|given|grown|held|kept|known|led|left|lost"
    r"|sent|shown|taken|thrown|told|written"
)
#: Names that a library or Kafka prescribes, or that end like a participle.
VERBS_AND_PRESCRIBED: Final = {
    "committed": "of Kafka's and librdkafka's consumers",
    "embed": "a verb",
    "feed": "a verb",
    "need": "a verb",
    "paused": "of Kafka's and librdkafka's consumers",
    "seed": "a noun",
    "shed": "a verb",
    "shared": "SharedServices of a node",
    "speed": "a noun",
}
#: Names that are right in one file, each with the reason.
EXCEPTIONS: Final = {
    ("src/lograft/client/columns/hashing.py", "word"): "murmur2 hashes words of four bytes",
}
#: The first quotes the words, the second is not ours.
EXEMPT: Final = {"STYLE.md", "LICENSE"}
PRODUCT: Final = ("src/", "docs/", "campaigns/", "bench/", "tools/", "packaging/", "examples/")


def product_texts() -> Iterator[tuple[str, str]]:
    for file in tracked_files():
        place = file.relative_to(ROOT).as_posix()
        is_product = place.startswith(PRODUCT) or "/" not in place
        if (
            is_product
            and place not in EXEMPT
            and file.suffix in (".py", ".md", ".toml", ".yaml", "")
        ):
            yield place, file.read_text()


def find_words(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line number of each listed word."""
    for match in re.finditer(rf"\b(?:{'|'.join(WORDS)})\b", text, re.IGNORECASE):
        yield text.count("\n", 0, match.start()) + 1, match[0]


def given_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line number of each name, without its leading underscores."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name.lstrip("_")
            case ast.arg(arg=name):
                yield node.lineno, name.lstrip("_")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name.lstrip("_")
            case ast.ClassDef(name=name):
                yield node.lineno, name.lstrip("_").lower()
            case _:
                pass


def python_files() -> Iterator[tuple[str, Path]]:
    for file in tracked_files():
        if file.suffix == ".py":
            yield file.relative_to(ROOT).as_posix(), file


def test_the_texts_are_free_of_listed_words() -> None:
    found = [
        f"{place}:{line}: {word!r}: write {replacement_of(word)}"
        for place, text in product_texts()
        for line, word in find_words(text)
    ]
    assert found == []


def test_names_are_not_listed() -> None:
    found = [
        f"{place}:{line}: {name!r}: call it {PRODUCT_NAMES[name]}"
        for place, file in python_files()
        for line, name in given_names(ast.parse(file.read_bytes()))
        if name in (PRODUCT_NAMES if place.startswith(PRODUCT) else NAMES)
        and (place, name) not in EXCEPTIONS
    ]
    assert found == []


def test_functions_are_not_bare_participles() -> None:
    found = [
        f"{place}:{node.lineno}: {node.name}: use a verb (find_, parse_), on_ or is_"
        for place, file in python_files()
        if place.startswith(PRODUCT)
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name.lstrip("_"))
        and node.name.lstrip("_") not in VERBS_AND_PRESCRIBED
    ]
    assert found == []


def test_modules_are_not_listed() -> None:
    found = [
        f"{place}: call it {MODULES[file.stem]}"
        for place, file in python_files()
        if file.stem in MODULES
    ]
    assert found == []


def test_the_exceptions_are_needed() -> None:
    for place, name in EXCEPTIONS:
        names = {each for _, each in given_names(ast.parse((ROOT / place).read_bytes()))}
        assert name in names, (place, name)


def replacement_of(word: str) -> str:
    return next(
        replacement
        for pattern, replacement in WORDS.items()
        if re.fullmatch(pattern, word, re.IGNORECASE)
    )


@pytest.mark.parametrize("word", ["nobody", "Nobody", "whoever", "hears from", "comes true"])
def test_listed_words_are_found(word: str) -> None:
    assert list(find_words(f"first line\nand {word} else")) == [(2, word)]
    assert replacement_of(word)


@pytest.mark.parametrize("text", ["a folder", "retold", "`nobody_` is a name", "shallow copies"])
def test_other_words_are_not_found(text: str) -> None:
    assert list(find_words(text)) == []


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "for one in []: pass",
        "[one for one in []]",
        "lambda one: 1",
        "def one(): ...",
        "class One: ...",
        "self._one = 1",
        "with open('x') as one: ...",
    ],
)
def test_given_names_are_found(source: str) -> None:
    assert "one" in {name for _, name in given_names(ast.parse(source))}
