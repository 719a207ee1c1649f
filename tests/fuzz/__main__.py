"""`make fuzz MINUTES=n`: atheris, guided by coverage, through the whole request path.

Under all circumstances of `variants.py` in turn, or under one with `ARGS='--variant guarded'`.
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
    from tests.fuzz.hostile import hostile_input
    from tests.fuzz.inventing import invented_input
    from tests.fuzz.seeds import seeds
    from tests.fuzz.target import Target
    from tests.fuzz.variants import BY_NAME, VARIANTS, flags_of

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".cache" / "fuzz"
LARGEST_INPUT = 16 * 1024
# Of eight inputs: how many are new and meant well, and how many are new and not.
OF_SO_MANY, INVENTED, HOSTILE = 8, 1, 2
SLOWEST_INPUT_S = 30
MOST_MEMORY_MB = 2048
# It ends without a word to us: what was done by then is in .cache/fuzz/tally.
INPUTS_PER_TALLY = 500


def main() -> None:
    arguments = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    arguments.add_argument("--minutes", type=float, default=1)
    arguments.add_argument("--variant", choices=BY_NAME, help="only under these circumstances")
    arguments.add_argument("--seed", type=int, default=0, help="0: another one in each run")
    arguments.add_argument("--talk", action="store_true", help="say what is found on the way")
    arguments.add_argument("files", nargs="*", help="findings to run again, and nothing else")
    given = arguments.parse_args()
    only = None if given.variant is None else BY_NAME[given.variant]
    target = Target(only)
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
        f"-seed={given.seed}",
        "-print_final_stats=1",
        str(corpus),
    ]
    routes = target.routes()

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Most inputs are those before with some bytes changed, some are new requests."""
        kind, rest = seed % OF_SO_MANY, seed // OF_SO_MANY
        flags = flags_of(VARIANTS[rest % len(VARIANTS)])
        if kind < INVENTED:
            return invented_input(routes, rest, most, flags)
        if kind < INVENTED + HOSTILE:
            return hostile_input(routes, rest, most, flags)
        return bytes(atheris.Mutate(data, most))

    def run(data: bytes) -> None:
        target.run(data)
        if sum(target.by_variant.values()) % INPUTS_PER_TALLY == 0:
            (FOLDER / "tally").write_text(target.summary() + "\n")

    atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
