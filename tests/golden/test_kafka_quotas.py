"""The quota that applies to a client, and what the client has used of it, as in Kafka's classes."""

from pathlib import Path
from typing import Final

from tests.golden.quota_questions import find_differences

FOLDER: Final = Path(__file__).parent / "quotas"


def test_quotas_are_found_and_measured_as_by_kafka() -> None:
    questions = (FOLDER / "questions.txt").read_text().splitlines()
    answers = (FOLDER / "answers.txt").read_text().splitlines()
    assert len(answers) > 1_000
    assert find_differences(questions, answers) == []
