"""The events of a shop that does not exist: the same every time, but for their times."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

#: Events come from the last so many minutes.
MINUTES = 20
COUNTRIES = ("DE", "FR", "IT", "JP", "US")
PRODUCTS = {"tea": 4.5, "coffee": 7.9, "cup": 12.0, "kettle": 39.0, "grinder": 89.0}
PATHS = ("/", "/search", "/product", "/basket", "/pay")
#: One order in so many is not what it should be.
BROKEN_EVERY = 1_000


class Event(NamedTuple):
    key: bytes
    value: bytes
    timestamp_ms: int


def orders(count: int, now_ms: int) -> Iterator[Event]:
    chance = random.Random(1)
    for number in range(count):
        moment = now_ms - MINUTES * 60_000 * (count - number) // count
        customer = int(chance.paretovariate(0.7)) % 5_000
        product = chance.choice(tuple(PRODUCTS))
        order = {
            "order": number,
            "customer": customer,
            "country": chance.choice(COUNTRIES),
            "product": product,
            "quantity": chance.randint(1, 4),
            "price": PRODUCTS[product],
        }
        if number > count // 2:
            order["coupon"] = chance.choice(("", "SPRING", "FRIEND"))  # a field that came later
        value = json.dumps(order)
        if number % BROKEN_EVERY == BROKEN_EVERY - 1:
            value = value[: len(value) // 2]  # cut short on the way
        yield Event(f"customer-{customer}".encode(), value.encode(), moment)


def web_log(count: int, now_ms: int) -> Iterator[Event]:
    chance = random.Random(2)
    for number in range(count):
        moment = now_ms - MINUTES * 60_000 * (count - number) // count
        moment -= int(chance.expovariate(1 / 500))  # some come late
        status = 500 if chance.random() < 0.004 else 200
        hit = {
            "path": chance.choices(PATHS, (8, 5, 4, 2, 1))[0],
            "status": status,
            "ms": round(chance.lognormvariate(3, 0.8), 1),
        }
        yield Event(f"session-{number % 4_001}".encode(), json.dumps(hit).encode(), moment)
