"""Principals of certificates: distinguished names as in Java, mapped by rules as in Kafka."""

from base64 import b64decode
from pathlib import Path
from typing import Final

from tests.golden.principal_questions import answer

FOLDER: Final = Path(__file__).parent / "principals"


def test_certificates_have_the_principals_of_kafka() -> None:
    questions = (FOLDER / "questions.txt").read_text().splitlines()
    answers = (FOLDER / "answers.txt").read_text().splitlines()
    assert len(answers) > 150
    differences = []
    for question, line in zip(questions, answers, strict=True):
        kafkas = None if line == "!" else b64decode(line).decode()
        if answer(question) != kafkas:
            shown = [b64decode(word) for word in question.split()[1:]]
            differences.append((shown, kafkas, answer(question)))
    assert differences == []
