import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas

SETTING = "listener.name.x.plain.sasl.jaas.config"
CANARY = "c4n4ry-secret"


def options(text: str) -> dict[str, str]:
    entry = parse_jaas(f"{PLAIN_MODULE} required {text};", setting=SETTING)
    return {name: secret.value for name, secret in entry.options.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("username=\"a\" password='b'", {"username": "a", "password": "b"}),
        ("username=admin password=p-a_s.s$1", {"username": "admin", "password": "p-a_s.s$1"}),
        ('user_a = "x"\n\tuser_b="y"', {"user_a": "x", "user_b": "y"}),
        (r'user_a="q\"uo\\te\u"', {"user_a": 'q"uo\\teu'}),
        (r'user_a="\101\n\t\60"', {"user_a": "A\n\t0"}),
        ('"user_a@b.org"="x"', {"user_a@b.org": "x"}),
        ('user_a="x" // a comment\n user_b="y" /* another; */', {"user_a": "x", "user_b": "y"}),
        ('user_a="// no comment; =" ', {"user_a": "// no comment; ="}),
        ('user_é="ü"', {"user_é": "ü"}),
        ('user_a=""', {"user_a": ""}),
    ],
)
def test_options_are_parsed_as_in_java(text: str, expected: dict[str, str]) -> None:
    assert options(text) == expected


def test_users_of_plain_are_options_with_a_prefix() -> None:
    entry = parse_jaas(
        f'{PLAIN_MODULE} requisite username="node" password="n" user_alice="a" user_="e";',
        setting=SETTING,
    )
    assert {name: secret.value for name, secret in entry.users.items()} == {"alice": "a", "": "e"}
    assert (entry.option("username"), entry.option("missing")) == ("node", None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not start with the class name"),
        (";", "does not start with the class name"),
        (
            "com.sun.security.auth.module.JndiLoginModule required;",
            "JndiLoginModule is not support",
        ),
        (f"{PLAIN_MODULE}", "not followed by required"),
        (f"{PLAIN_MODULE} needed;", "not followed by required"),
        (f"{PLAIN_MODULE} required", "does not end with a semicolon"),
        (f'{PLAIN_MODULE} required user_a="{CANARY}"', "does not end with a semicolon"),
        (f"{PLAIN_MODULE} required {CANARY};", 'not written as name="value"'),
        (f"{PLAIN_MODULE} required user_a=;", 'value of an option is not written as name="value"'),
        (f'{PLAIN_MODULE} required user_a="{CANARY};', "neither part of a word"),
        (f"{PLAIN_MODULE} required user_a={CANARY}!;", "neither part of a word"),
        (f'{PLAIN_MODULE} required user_a="{CANARY}\n";', "neither part of a word"),
        (f"{PLAIN_MODULE} required; {SCRAM_MODULE} required;", "more than one login module"),
        (f"{PLAIN_MODULE} required /* user_a={CANARY};", "neither part of a word"),
        (f"{CANARY} required;", "not supported"),
    ],
)
def test_errors_name_the_problem_and_no_value(text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem) as raised:
        parse_jaas(text, setting=SETTING)
    assert SETTING in str(raised.value)
    assert CANARY not in str(raised.value)


def test_secrets_are_not_shown() -> None:
    entry = parse_jaas(f'{PLAIN_MODULE} required user_a="{CANARY}";', setting=SETTING)
    assert CANARY not in f"{entry!r} {entry} {entry.options} {entry.users}"


@given(st.text(max_size=60))
def test_any_text_gives_an_entry_or_an_error(text: str) -> None:
    for value in (text, f"{PLAIN_MODULE} required {text}", f'{PLAIN_MODULE} required a="{text}";'):
        try:
            parse_jaas(value, setting=SETTING)
        except InvalidConfig:
            pass


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9), max_size=4))
def test_quoted_options_survive(values: dict[str, str]) -> None:
    def quote(text: str) -> str:
        return '"' + "".join(f"\\{ord(c):03o}" if ord(c) < 0x40 else _plain(c) for c in text) + '"'

    def _plain(character: str) -> str:
        return f"\\{character}" if character in '\\"' else character

    text = " ".join(f"{quote(name)}={quote(value)}" for name, value in values.items())
    assert options(text) == values
