"""Plants the defects of mutants.py one by one in a copy of the project, and runs the tests that should notice them.

    make mutants JOBS=2     all of them, so many at once
    make mutants ONLY=rdp   those whose description or file contains the word

A defect that no test notices is a hole in the tests. A defect with which the tests do not come to an end counts as
caught, since nobody could overlook it, and the table says so.
"""

import os
import sys

from bench import ROOT, Bench, on_benches
from mutants import DEFECTS, Defect

SECONDS = 300
"""How long the tests of one defect may take."""


def main(word: str = "", jobs: int = 1) -> int:
    """Prints a table, and fails where a defect was missed."""
    chosen = [defect for defect in DEFECTS if word in f"{defect.what} {defect.file}"]
    missed = list[Defect]()

    def plant(bench: Bench, defect: Defect) -> None:
        text = (ROOT / "src/dpnlp" / defect.file).read_text(encoding="utf-8")
        tests = [f"tests/{path}" for path in defect.tests]
        by = bench.change(defect.file, text.replace(defect.old, defect.new), tests, SECONDS).noticed
        if not by:
            missed.append(defect)
        print(f"{'caught' if by else 'MISSED'}  {defect.what}  ({by or 'no test failed'})", flush=True)

    on_benches(plant, chosen, jobs)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} planted defects are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(os.environ.get("ONLY", ""), int(os.environ.get("JOBS", 1))))
