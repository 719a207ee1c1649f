"""Made-up customers: the same seed makes the same records, and what they know grows."""

import json
from itertools import pairwise

from headrace.pipelines.shipped.customers import generate


def made(seed=7, bad_percent=0.0):
    return list(generate(records=600, customers=30, seed=seed, bad_percent=bad_percent))


def test_the_same_seed_makes_the_same_records_and_another_one_others():
    assert made() == made()
    assert made() != made(seed=8)


def test_fields_come_one_after_the_other():
    thirds = [made()[n * 200 : (n + 1) * 200] for n in range(3)]
    fields = [
        set().union(*(json.loads(value) for _, value in third if value is not None))
        for third in thirds
    ]
    assert fields[0] == {"name", "orders", "spent"}
    assert fields[1] - fields[0] == {"email"}
    assert fields[2] - fields[1] == {"address"}


def test_only_who_is_there_goes_and_who_comes_again_begins_anew():
    by_customer = {}
    for key, value in made():
        by_customer.setdefault(key, []).append(value)
    assert len(by_customer) == 30
    assert any(None in values for values in by_customer.values())
    for values in by_customer.values():
        assert values[0] is not None
        for before, after in pairwise(values):
            assert before is not None or after is not None
            if after is not None:
                so_far = 0 if before is None else json.loads(before)["orders"]
                assert json.loads(after)["orders"] == so_far + 1


def test_some_can_be_broken():
    broken = [value for _, value in made(bad_percent=20.0) if value == b'{"name": ']
    assert 60 < len(broken) < 180
