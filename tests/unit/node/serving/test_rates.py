"""Rates as Apache Kafka measures them: samples of a window, a bucket of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.node.serving.rates import LONGEST_THROTTLE_MS, Rate, TokenBucket


def test_a_burst_is_measured_over_all_samples_but_the_current_one():
    rate = Rate(11, 1_000)
    rate.record(5_000, 0)
    assert rate.measure(0) == (500.0, 10_000)
    assert rate.measure(500) == (5_000 * 1000 / 10_500, 10_500)


def test_who_is_above_waits_until_the_rate_has_come_down():
    """20,000 bytes at 1,000 a second: ten seconds of window, so ten more to wait."""
    rate = Rate(11, 1_000)
    rate.record(20_000, 0)
    assert rate.throttle_ms(1_000, 0) == 10_000
    assert rate.throttle_ms(2_000, 0) == 0
    assert rate.throttle_ms(1_999, 0) == 5


def test_a_steady_stream_at_its_limit_never_waits():
    rate = Rate(11, 1_000)
    for second in range(60):
        rate.record(1_000, second * 1_000)
        assert rate.throttle_ms(1_100, second * 1_000) == 0


def test_what_is_older_than_the_window_is_forgotten():
    rate = Rate(11, 1_000)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(1_000, 10_999) > 0
    assert rate.measure(11_000) == (0.0, 10_000)


def test_the_oldest_sample_counts_until_its_last_event_is_too_old():
    """It may have begun before the window: then the time that it covers is longer too."""
    rate = Rate(2, 1_000)
    rate.record(100, 0)
    rate.record(100, 900)
    rate.record(100, 1_000)
    assert rate.measure(2_500) == (300 * 1000 / 2_500, 2_500)
    assert rate.measure(2_900) == (100 * 1000 / 1_900, 1_900)


def test_what_was_taken_back_was_never_there():
    rate = Rate(11, 1_000)
    rate.record(100, 0)
    rate.record(7_777, 300)
    rate.record(-7_777, 300)
    assert rate.measure(300) == (100 * 1000 / 10_300, 10_300)


def test_no_wait_is_longer_than_the_wire_can_say():
    rate = Rate(11, 1_000)
    rate.record(1e15, 0)
    assert rate.throttle_ms(0.001, 0) == LONGEST_THROTTLE_MS


def test_a_bucket_begins_full_and_may_be_overdrawn():
    bucket = TokenBucket(11, 1_000)
    assert bucket.measure(2, 5_000) == 22
    bucket.record(30, 2, 5_000)
    assert bucket.measure(2, 5_000) == -8
    assert bucket.throttle_ms(2, 5_000) == 4_000
    assert bucket.throttle_ms(2, 8_000) == 1_000
    assert bucket.throttle_ms(2, 9_000) == 0


def test_a_bucket_is_never_fuller_than_full():
    bucket = TokenBucket(11, 1_000)
    bucket.record(1, 2, 0)
    assert bucket.measure(2, 1_000_000) == 22


class Samples:
    """The same as Apache Kafka's classes do it, sample by sample, with nothing kept in between."""

    def __init__(self, samples, sample_ms):
        self.samples, self.sample_ms = samples, sample_ms
        self.kept, self.current = [], 0

    def record(self, value, now_ms):
        if not self.kept:
            self.kept.append([now_ms, now_ms, 0])
        if now_ms - self.kept[self.current][0] >= self.sample_ms:
            self.current = (self.current + 1) % (self.samples + 1)
            if self.current == len(self.kept):
                self.kept.append(None)
            self.kept[self.current] = [now_ms, now_ms, 0]
        self.kept[self.current][1] = now_ms
        self.kept[self.current][2] += value

    def measure(self, now_ms):
        for at, sample in enumerate(self.kept):
            if now_ms - sample[1] >= self.samples * self.sample_ms:
                self.kept[at] = [now_ms, now_ms, 0]
        elapsed_ms = now_ms - min((sample[0] for sample in self.kept), default=now_ms)
        full = elapsed_ms // self.sample_ms
        elapsed_ms += max(0, self.samples - 1 - full) * self.sample_ms
        elapsed_ms = max(1, elapsed_ms)
        return sum(sample[2] for sample in self.kept) * 1000 / elapsed_ms, elapsed_ms


steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 10_000), st.booleans()))


@given(st.integers(1, 12), steps)
def test_rates_are_those_of_apaches_samples(samples, events):
    rate, model = Rate(samples, 1_000), Samples(samples, 1_000)
    now_ms = 0
    for passed_ms, value, asked in events:
        now_ms += passed_ms
        rate.record(value, now_ms)
        model.record(value, now_ms)
        if asked:
            assert rate.measure(now_ms) == model.measure(now_ms)
    assert rate.measure(now_ms + 500) == model.measure(now_ms + 500)
