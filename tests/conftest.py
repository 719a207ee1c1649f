"""For all suites: Hypothesis repeats itself exactly and does not measure time on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headrace", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headrace")
