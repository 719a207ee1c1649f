"""For all suites: Hypothesis repeats itself exactly and does not measure time on a busy machine.
A process may have as many files open as the system grants: what a test leaves is collected later.
Ctrl-C is heard, also in a run that a script has put into the background: such a run ignores it, and
so would everything that a test starts.
"""

import signal

from hypothesis import HealthCheck, settings

from headrace.server.real_disk import raise_open_files_limit

settings.register_profile(
    "headrace", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headrace")
raise_open_files_limit()
signal.signal(signal.SIGINT, signal.default_int_handler)
