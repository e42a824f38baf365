"""Generates the events of an imaginary shop, which differ between runs only in their timestamps."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

#: The events are spread over this many minutes before now.
MINUTES = 20
COUNTRIES = ("DE", "FR", "IT", "JP", "US")
PRODUCTS = {"tea": 4.5, "coffee": 7.9, "cup": 12.0, "kettle": 39.0, "grinder": 89.0}
PATHS = ("/", "/search", "/product", "/basket", "/pay")
#: One of this many orders is truncated, and so not valid JSON.
BROKEN_EVERY = 1_000


class Event(NamedTuple):
    key: bytes
    value: bytes
    timestamp_ms: int


def generate_orders(count: int, now_ms: int) -> Iterator[Event]:
    generator = random.Random(1)
    for number in range(count):
        timestamp_ms = now_ms - MINUTES * 60_000 * (count - number) // count
        customer = int(generator.paretovariate(0.7)) % 5_000
        product = generator.choice(tuple(PRODUCTS))
        order = {
            "order": number,
            "customer": customer,
            "country": generator.choice(COUNTRIES),
            "product": product,
            "quantity": generator.randint(1, 4),
            "price": PRODUCTS[product],
        }
        if number > count // 2:
            order["coupon"] = generator.choice(
                ("", "SPRING", "FRIEND")
            )  # a field that was added later
        value = json.dumps(order)
        if number % BROKEN_EVERY == BROKEN_EVERY - 1:
            value = value[: len(value) // 2]  # truncated in transit
        yield Event(f"customer-{customer}".encode(), value.encode(), timestamp_ms)


def generate_web_log(count: int, now_ms: int) -> Iterator[Event]:
    generator = random.Random(2)
    for number in range(count):
        timestamp_ms = now_ms - MINUTES * 60_000 * (count - number) // count
        timestamp_ms -= int(generator.expovariate(1 / 500))  # some are late
        status = 500 if generator.random() < 0.004 else 200
        hit = {
            "path": generator.choices(PATHS, (8, 5, 4, 2, 1))[0],
            "status": status,
            "ms": round(generator.lognormvariate(3, 0.8), 1),
        }
        yield Event(f"session-{number % 4_001}".encode(), json.dumps(hit).encode(), timestamp_ms)
