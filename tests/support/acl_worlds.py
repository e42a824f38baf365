"""Random sets of ACLs with questions about them, as lines that tools/kafka/Authorize.java reads.

Names are few and short, so that most questions meet several ACLs.
"""

import random
from typing import Final
from uuid import UUID

from lograft.security.acls import ALL_OPERATIONS, Acl, AclFilter
from lograft.security.authorization import Need, Operation, Permission, ResourceType
from lograft.security.standard_authorizer import StandardAuthorizer

NAMES: Final = ("a", "ab", "abc", "b", "ba", "*", "a*", "é", "hardcode")
PRINCIPALS: Final = ("User:a", "User:b", "User:*", "User:a:b", "Group:a", "User:CN=x")
HOSTS: Final = ("10.0.0.1", "10.0.0.2", "*", "0:0:0:0:0:0:0:1", "::1")
CLIENTS: Final = ("10.0.0.1", "10.0.0.2", "::1")
TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP)
ACLS_MAX: Final = 10
QUESTIONS: Final = 8


def random_line(chance: random.Random) -> str:
    settings = chance.choice(("false", "true")), chance.choice(("", "User:b;Group:a"))
    # Kafka rejects a set in which an ACL occurs twice.
    drawn = (random_acl(chance) for _ in range(chance.randint(0, ACLS_MAX)))
    acls = " ".join(dict.fromkeys(drawn))
    questions = " ".join(random_question(chance) for _ in range(QUESTIONS))
    return "|".join((*settings, acls, questions))


def random_acl(chance: random.Random) -> str:
    fields = (
        int(chance.choice(TYPES)),
        chance.choice(NAMES),
        chance.choice((3, 3, 4)),
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        random_operation(chance),
        chance.choice((3, 3, 2)),
    )
    return ",".join(map(str, fields))


def random_operation(chance: random.Random) -> int:
    """Most are those that imply others or are implied."""
    return chance.choice((ALL_OPERATIONS, 3, 4, 8, 8, 10, 11, chance.randint(3, max(Operation))))


def random_question(chance: random.Random) -> str:
    principal = chance.choice([each for each in PRINCIPALS if each != "User:*"])
    asked = (principal, chance.choice(CLIENTS), max(3, random_operation(chance)))
    resource_type = int(chance.choice(TYPES))
    fields: tuple[object, ...]
    match chance.randrange(8):
        case 0:
            fields = (
                "filter",
                chance.choice((1, *map(int, TYPES))),
                chance.choice(("", *NAMES)),
                chance.randint(1, 4),
                chance.choice(("", *PRINCIPALS)),
                chance.choice(("", *HOSTS)),
                chance.choice((1, 1, random_operation(chance))),
                chance.randint(1, 3),
            )
        case 1 | 2:
            fields = ("any", *asked, resource_type)
        case _:
            fields = ("authorize", *asked, resource_type, chance.choice(NAMES))
    return ",".join(map(str, fields))


def answer(line: str) -> str:
    """Returns the answers of Lograft, as a line of the Java program."""
    everyone, super_users, acl_texts, questions = line.split("|")
    acls = {UUID(int=number): acl_of(text) for number, text in enumerate(acl_texts.split())}
    authorizer = StandardAuthorizer(super_users.split(";"), allow_if_no_acl=everyone == "true")
    authorizer.update(acls)
    authorizer.complete_load()
    distinct = set(acls.values())
    return " ".join(
        str(int(answer_one(authorizer, distinct, question.split(","))))
        for question in questions.split(" ")
    )


def acl_of(text: str) -> Acl:
    kind, name, pattern, principal, host, operation, permission = text.split(",")
    return Acl(int(kind), name, int(pattern), principal, host, int(operation), int(permission))


def answer_one(authorizer: StandardAuthorizer, acls: set[Acl], words: list[str]) -> int:
    if words[0] == "filter":
        _, kind, name, pattern, principal, host, operation, permission = words
        selected = AclFilter(
            int(kind),
            name or None,
            int(pattern),
            principal or None,
            host or None,
            int(operation),
            int(permission),
        )
        return sum(map(selected.matches, acls))
    principal, host = words[1:3]
    needed = Permission(Operation(int(words[3])), ResourceType(int(words[4])))
    if words[0] == "any":
        return authorizer.authorize_any(principal, host, needed)
    (allowed,) = authorizer.authorize(principal, host, [Need(*needed, words[5])])
    return allowed
