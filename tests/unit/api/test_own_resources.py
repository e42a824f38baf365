import asyncio

from lograft.api.own_resources import handle_each
from lograft.model.errors import DiskFailed, ErrorCode, Rejected


def answer_here(resource: str) -> str | None:
    if resource == "bad":
        raise Rejected(ErrorCode.INVALID_REQUEST, "no")
    return "here" if resource == "logger" else None


def refused(resource: str, code: int, message: str) -> str:
    return f"{resource}: {ErrorCode(code).name}"


def ask(*resources: str, fails: bool = False) -> tuple[list[str], list[list[str]]]:
    """The answers, and what the controller was asked."""
    asked: list[list[str]] = []

    async def decide(rest: list[str]) -> list[str]:
        asked.append(rest)
        if fails:
            raise DiskFailed("dir", OSError("gone"))
        return [f"decided {each}" for each in rest]

    work = handle_each(resources, here=answer_here, decide=decide, build_error=refused)
    return asyncio.run(work), asked


def test_answers_keep_the_order_of_the_resources() -> None:
    answers, asked = ask("a", "bad", "b", "logger", "c")
    assert answers == ["decided a", "bad: INVALID_REQUEST", "decided b", "here", "decided c"]
    assert asked == [["a", "b", "c"]], "one decision about all"


def test_the_controller_is_not_asked_for_nothing() -> None:
    assert ask("bad", "logger") == (["bad: INVALID_REQUEST", "here"], [])


def test_a_decision_that_fails_concerns_only_its_resources() -> None:
    answers, _ = ask("logger", "a", fails=True)
    assert answers == ["here", "a: KAFKA_STORAGE_ERROR"]
