"""`make fuzz MINUTES=n`: atheris, guided by coverage, through the whole request path.

What it finds is written to .cache/fuzz/crash-*; give such a file as an argument to see it again.
The corpus in .cache/fuzz/corpus grows from run to run; it begins with what real clients have sent.
A crash ends the run with a failure; make it a test in tests/unit/test_fuzz_findings.py.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import atheris

# It names every module as it goes; hundreds of lines that say nothing.
with redirect_stderr(StringIO()), atheris.instrument_imports(include=["headrace"]):
    from tests.fuzz.inventing import invented_input
    from tests.fuzz.seeds import must_log_in, seeds
    from tests.fuzz.target import Target

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".cache" / "fuzz"
LARGEST_INPUT = 16 * 1024
ONE_IN_SO_MANY_IS_INVENTED = 4
SLOWEST_INPUT_S = 30
MOST_MEMORY_MB = 2048


def main() -> None:
    arguments = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    arguments.add_argument("--minutes", type=float, default=1)
    arguments.add_argument("--talk", action="store_true", help="say what is found on the way")
    arguments.add_argument("files", nargs="*", help="findings to run again, and nothing else")
    given = arguments.parse_args()
    target = Target(authenticate=must_log_in)
    if given.files:
        for file in given.files:
            target.run(Path(file).read_bytes())
        return
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds(target.routes()):
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    options = [
        f"-max_total_time={max(1, int(given.minutes * 60))}",
        f"-max_len={LARGEST_INPUT}",
        f"-timeout={SLOWEST_INPUT_S}",
        f"-rss_limit_mb={MOST_MEMORY_MB}",
        f"-artifact_prefix={FOLDER}/",
        f"-verbosity={int(given.talk)}",
        "-print_final_stats=1",
        str(corpus),
    ]
    routes = target.routes()

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Most inputs are those before with some bytes changed, some are new requests."""
        if seed % ONE_IN_SO_MANY_IS_INVENTED == 0:
            return invented_input(routes, seed, most)
        return bytes(atheris.Mutate(data, most))

    atheris.Setup([sys.argv[0], *options], target.run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
