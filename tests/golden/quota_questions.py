"""Questions about quotas, and Lograft's answers, in the format of tools/QuotaOracle.java, which
answers them with Apache Kafka's own classes. These commands made the recorded sample:

    python -m tests.golden.quota_questions 40 > tests/golden/quotas/questions.txt
    java -cp ".cache/kafka/4.3.1/*" tools/QuotaOracle.java < tests/golden/quotas/questions.txt \
        > tests/golden/quotas/answers.txt
"""

import random
import sys
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote

from lograft.security.quota_limits import PRODUCER_BYTE_RATE, QuotaLimits, limits_of
from lograft.security.quota_rates import QuotaWindow, SampledRate, TokenBucket

USERS: Final = ("alice", "bob", "CN=a,O=b c", "ü")
CLIENT_IDS: Final = ("c", "d/e", "*", "-")
#: Not one that a clock begins with: Kafka's token buckets are full after a long time since 1970.
BEGIN_MS: Final = 1_700_000_000_000


def make_questions(seed: int, count: int) -> Iterator[str]:
    """Yields `count` sets of limits and as many measurements."""
    source = random.Random(seed)
    for _ in range(count):
        yield from _matching(source)
        yield from _measurement(source)


def _matching(source: random.Random) -> Iterator[str]:
    entities = [
        (user, client_id)
        for user in (*map(_encode, USERS[:3]), "*", "-")
        for client_id in (*map(_encode, CLIENT_IDS[:3]), "*", "-")
        if (user, client_id) != ("-", "-")
    ]
    chosen = source.sample(entities, source.choice((0, 1, 2, 3, 5, 8, len(entities))))
    words = [
        word
        for user, client_id in chosen
        for word in (user, client_id, str(source.randint(1, 1_000)))
    ]
    yield " ".join(("limits", *words))
    for user in USERS:
        for client_id in (*CLIENT_IDS, ""):
            yield f"/{_encode(user)}/{_encode(client_id)}"


def _measurement(source: random.Random) -> Iterator[str]:
    limit = source.choice((1, 10, 1_000, 12_345.5))
    kind = source.choice(("rate", "bucket"))
    yield f"{kind} {source.randint(1, 12)} {source.randint(1, 3)} {limit}"
    now_ms = BEGIN_MS
    for _ in range(source.randint(1, 40)):
        now_ms += source.choice((0, 1, *(source.randint(0, most) for most in (500, 3_000, 30_000))))
        value = source.choice(
            (0, 1, -1, source.randint(0, int(limit * 3)), source.random() * limit)
        )
        yield f"{now_ms} {value}"


def _encode(name: str) -> str:
    """Returns the name so that it is neither a special word nor has a separator."""
    return quote(name, safe="").replace("-", "%2D").replace("*", "%2A")


def answer(questions: Iterable[str]) -> Iterator[str]:
    """Yields Lograft's answers."""
    limits = QuotaLimits({})
    rate: SampledRate | TokenBucket = SampledRate(QuotaWindow(1, 1_000))
    limit = 0.0
    for question in questions:
        words = question.split(" ")
        if words[0] in ("rate", "bucket"):
            window = QuotaWindow(int(words[1]), int(words[2]) * 1_000)
            rate = SampledRate(window) if words[0] == "rate" else TokenBucket(window)
            limit = float(words[3])
        elif words[0] == "limits":
            limits = _limits(words[1:])
        elif question.startswith("/"):
            _, user, client_id = (unquote(part) for part in question.split("/"))
            found = limits.find(user, client_id)
            if found is None:
                yield "none"
            else:
                key, value = found
                yield f"{value} /{quote(key.user, safe='')}/{_encode(key.client_id)}"
        else:
            now_ms, value = int(words[0]), float(words[1])
            if isinstance(rate, SampledRate):
                rate.record(value, now_ms)
                measured, throttle_ms = rate.measure(now_ms), rate.throttle_ms(limit, now_ms)
            else:
                rate.record(value, limit, now_ms)
                measured = rate.measure(limit, now_ms)
                throttle_ms = rate.throttle_ms(limit, now_ms)
            yield f"{measured} {throttle_ms}"


def _limits(words: list[str]) -> QuotaLimits:
    quotas = []
    for user, client_id, value in zip(words[::3], words[1::3], words[2::3], strict=True):
        entity = [
            (kind, None if name == "*" else unquote(name))
            for kind, name in (("user", user), ("client-id", client_id))
            if name != "-"
        ]
        quotas.append((entity, {PRODUCER_BYTE_RATE: float(value)}))
    return limits_of(PRODUCER_BYTE_RATE, quotas)


def find_differences(questions: Iterable[str], answers: Iterable[str]) -> list[str]:
    """Returns the answers of Lograft that differ from Kafka's, both with their question."""
    asked = [line for line in questions if line[0] in "/1"]
    differences = []
    for question, kafkas, own in zip(asked, answers, answer_lines(questions), strict=True):
        if not _are_equal(kafkas, own):
            differences.append(f"{question}: Kafka {kafkas}, Lograft {own}")
    return differences


def answer_lines(questions: Iterable[str]) -> list[str]:
    return list(answer(questions))


def _are_equal(kafkas: str, own: str) -> bool:
    if own == "none":
        # Kafka's tags of clients without a quota depend on which kinds of quotas there are.
        return kafkas.startswith("none ")
    if "/" in own:
        return kafkas.replace("*", "%2A").replace("-", "%2D") == own.replace("-", "%2D")
    kafkas_value, kafkas_ms = kafkas.split()
    value, throttle_ms = own.split()
    close = abs(float(kafkas_value) - float(value)) <= 1e-9 * max(1.0, abs(float(value)))
    return close and kafkas_ms == throttle_ms


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in make_questions(1, int(sys.argv[1])))
