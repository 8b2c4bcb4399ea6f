#!/usr/bin/env python3
"""Everything that needs GPUs, in one call: `tests/gpu/run.py [--kind one|two] [--out FILE] [--seconds N] [--only A,B]`.

Prints one table and writes JSON. docs/gpu.md says what a machine needs; without a GPU it says so and ends with 2.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from elasticfsm.errors import ElasticError


def main() -> int:
    """Parse, run, and return the exit code: 0 all bars met, 1 some missed, 2 it could not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("one", "two"), default="one")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=520.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    try:
        from elasticfsm.runtime.bench.gpu.suite import run

        return run(given.kind, given.out, given.seconds, given.only)
    except ElasticError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
