"""An endpoint that is down is left alone for longer and longer, then tried with one call."""

from headrace.app.triggers.breaker import BreakerState, CircuitBreaker


def test_a_few_failures_do_not_open_it_and_a_success_forgets_them():
    breaker = CircuitBreaker(failures_to_open=3)
    for _ in range(5):
        breaker.failed(0)
        breaker.failed(0)
        breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.wait_ms(0) == 0


def test_it_opens_rests_and_lets_one_trial_through():
    breaker = CircuitBreaker(failures_to_open=3, rest_ms=1_000)
    for _ in range(3):
        breaker.failed(10_000)
    assert breaker.state is BreakerState.OPEN
    assert breaker.wait_ms(10_400) == 600

    assert breaker.wait_ms(11_000) == 0  # the trial
    assert breaker.wait_ms(11_001) > 0  # nobody else while it runs
    breaker.succeeded()
    assert breaker.wait_ms(11_002) == 0


def test_each_failed_trial_doubles_the_rest_up_to_the_longest():
    breaker = CircuitBreaker(failures_to_open=1, rest_ms=1_000, longest_rest_ms=5_000)
    now_ms, rests = 0, []
    for _ in range(5):
        breaker.failed(now_ms)
        rests.append(breaker.wait_ms(now_ms))
        now_ms += rests[-1]
        assert breaker.wait_ms(now_ms) == 0
    assert rests == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_a_trial_that_ends_without_an_answer_leaves_the_next_one_to_try():
    breaker = CircuitBreaker(failures_to_open=1, rest_ms=1_000)
    breaker.failed(0)
    assert breaker.wait_ms(1_000) == 0
    breaker.abandoned()
    assert breaker.wait_ms(1_001) == 0
