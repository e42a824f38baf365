import asyncio

from lograft.api.own_resources import handle_each
from lograft.model.errors import DiskFailed, ErrorCode, Rejected


def handle_here(resource: str) -> str | None:
    if resource == "bad":
        raise Rejected(ErrorCode.INVALID_REQUEST, "no")
    return "here" if resource == "logger" else None


def build_error(resource: str, code: int, message: str) -> str:
    return f"{resource}: {ErrorCode(code).name}"


def handle(*resources: str, fails: bool = False) -> tuple[list[str], list[list[str]]]:
    """Returns the responses, and the requests to the controller."""
    forwarded: list[list[str]] = []

    async def decide(rest: list[str]) -> list[str]:
        forwarded.append(rest)
        if fails:
            raise DiskFailed("dir", OSError("gone"))
        return [f"decided {each}" for each in rest]

    work = handle_each(resources, here=handle_here, decide=decide, build_error=build_error)
    return asyncio.run(work), forwarded


def test_responses_are_in_the_order_of_the_resources() -> None:
    responses, forwarded = handle("a", "bad", "b", "logger", "c")
    assert responses == ["decided a", "bad: INVALID_REQUEST", "decided b", "here", "decided c"]
    assert forwarded == [["a", "b", "c"]], "one decision for all of them"


def test_controller_gets_no_empty_request() -> None:
    assert handle("bad", "logger") == (["bad: INVALID_REQUEST", "here"], [])


def test_failed_decision_affects_only_its_resources() -> None:
    responses, _ = handle("logger", "a", fails=True)
    assert responses == ["here", "a: KAFKA_STORAGE_ERROR"]
