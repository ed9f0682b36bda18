"""Planted defects: each is patched into a copy of the project, and the tests that should notice it are run.

    make mutants            all of them, a few minutes
    make mutants ONLY=rdp   those whose description or file contains the word

A defect that no test notices is a hole in the tests. The list holds what went wrong in earlier systems, and what would
be easy to get wrong here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Defect:
    """One edit to a file under src/dpnlp, and the tests (paths under tests/) that must fail with it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


PLD, RDP = ("accounting/test_pld.py",), ("accounting/test_rdp.py",)
SUBSAMPLING, CALIBRATION = ("accounting/test_subsampling.py",), ("accounting/test_calibration.py",)
LEDGER, COMPOSITION = ("accounting/test_ledger.py",), ("accounting/test_composition.py",)
LOSSES, CLIPPING = ("accounting/test_losses.py",), ("training/test_clipping.py",)

DEFECTS = (
    Defect(
        "shuffled lots accounted as Poisson",
        "accounting/subsampling.py",
        "return Repeated(noise, self.epochs)",
        "return Repeated(PoissonSampled(self.q, noise), self.steps)",
        SUBSAMPLING,
    ),
    Defect(
        "N rounded up to a multiple of the lot size",
        "accounting/subsampling.py",
        "return self.lot_size / self.records",
        "return 1 / self.lots_per_epoch",
        SUBSAMPLING,
    ),
    Defect(
        "the last, partial epoch forgotten",
        "accounting/subsampling.py",
        "return -(-self.steps // self.lots_per_epoch)",
        "return self.steps // self.lots_per_epoch",
        SUBSAMPLING,
    ),
    Defect(
        "a sampler borrows an event that is not proved for it",
        "accounting/subsampling.py",
        "if adjacency not in self.sampling.adjacencies:",
        "if False:",
        SUBSAMPLING,
    ),
    Defect(
        "a replaced record moves a Gaussian answer only once",
        "accounting/pld.py",
        "precision += times * (apart / z) ** 2",
        "precision += times * (1 / z) ** 2",
        (*RDP, *LEDGER),
    ),
    Defect(
        "a replaced record moves a Laplace answer only once",
        "accounting/pld.py",
        "return profiles.laplace(apart / z)",
        "return profiles.laplace(1 / z)",
        PLD,
    ),
    Defect(
        "a fixed-size lot treated as if a record were added",
        "accounting/pld.py",
        "profiles.gaussian(apart / z, deviations), lot_size / records)",
        "profiles.gaussian(1 / z, deviations), lot_size / records)",
        PLD,
    ),
    Defect(
        "only the added record is looked at, not the removed one",
        "accounting/pld.py",
        "else [forward, backward]",
        "else [backward]",
        PLD,
    ),
    Defect(
        "δ of repeated releases counted once",
        "accounting/pld.py",
        "log_kept += times * math.log1p(-failure)",
        "log_kept += math.log1p(-failure)",
        (*PLD, *LEDGER),
    ),
    Defect(
        "the count of randomized responses ignored",
        "accounting/pld.py",
        "            case _:\n                rest[atom] += times",
        "            case _:\n                rest[atom] += 1 if isinstance(atom, RandomizedResponse) else times",
        PLD,
    ),
    Defect(
        "truncation of lots ignored",
        "accounting/profiles.py",
        "cut = float(binom.sf(largest_lot - 1, records - 1, q))",
        "cut = 0.0",
        PLD,
    ),
    Defect(
        "infinite losses dropped",
        "accounting/losses.py",
        "infinite = 1 - (1 - infinite) * math.exp(times * math.log1p(-part.infinite))",
        "infinite = 0.0",
        LOSSES,
    ),
    Defect(
        "masses on the grid a little too small",
        "accounting/losses.py",
        "masses[:-1] -= falls[1:] / math.expm1(step)",
        "masses[:-1] -= 1.0001 * falls[1:] / math.expm1(step)",
        PLD,
    ),
    Defect(
        "a plain FFT, whose rounding a million steps magnify",
        "accounting/losses.py",
        "aim = min(-math.log(delta), 0.9 * exponent(high))",
        "aim = -1.0",
        PLD,
    ),
    Defect(
        "rdp: a replaced record moves the answer only once",
        "accounting/rdp.py",
        "dp_accounting.GaussianDpEvent(z / apart), orders), 0.0",
        "dp_accounting.GaussianDpEvent(z), orders), 0.0",
        RDP,
    ),
    Defect(
        "rdp: steps not counted",
        "accounting/rdp.py",
        "total = total + times * part",
        "total = total + part",
        RDP,
    ),
    Defect(
        "moments: a conversion that is too generous",
        "accounting/rdp.py",
        "divergence + math.log(1 / remaining)",
        "divergence + math.log(0.5 / remaining)",
        RDP,
    ),
    Defect(
        "calibrated noise not checked against the accountant",
        "accounting/calibration.py",
        "    z = round_up(_solve(cost, target, guess, falling=True), DIGITS)\n    while cost(z) > target:",
        "    z = 0.9999 * _solve(cost, target, guess, falling=True)\n    while False:",
        CALIBRATION,
    ),
    Defect(
        "a stated ε rounded to the nearest instead of up",
        "accounting/accountant.py",
        "epsilon=round_up(epsilon(schedule.event(noise_multiplier), delta, adjacency, accountant), DIGITS),",
        "epsilon=float(f'{epsilon(schedule.event(noise_multiplier), delta, adjacency, accountant):.3g}'),",
        (*SUBSAMPLING, *CALIBRATION),
    ),
    Defect(
        "a plan states more than its target",
        "accounting/planning.py",
        "promised = replace(promised, epsilon=min(promised.epsilon, self.epsilon))",
        "promised = replace(promised, epsilon=promised.epsilon + 1e-4)",
        CALIBRATION,
    ),
    Defect(
        "epochs without their last, partial lot",
        "accounting/planning.py",
        "math.ceil((self.epochs or 1) * lots_per_epoch)",
        "math.ceil((self.epochs or 1) * self.records / lot_size)",
        CALIBRATION,
    ),
    Defect(
        "parallel composition under replace as if one part were touched",
        "accounting/composition.py",
        "touched = 2 if adjacency is Adjacency.REPLACE else 1",
        "touched = 1",
        COMPOSITION,
    ),
    Defect(
        "δ of a group grows linearly",
        "accounting/composition.py",
        "min(1.0, delta * math.expm1(k * epsilon) / math.expm1(epsilon))",
        "min(1.0, k * delta)",
        COMPOSITION,
    ),
    Defect(
        "ledger: a bare (ε, δ) not doubled under replace",
        "accounting/releases.py",
        "case ApproximateDP(epsilon, delta):",
        "case ApproximateDP(epsilon, delta) if False:",
        LEDGER,
    ),
    Defect(
        "ledger: an example's guarantee taken for a user's",
        "accounting/releases.py",
        "if not release.unit.protects(unit):",
        "if False:",
        LEDGER,
    ),
    Defect(
        "ledger: the budget not looked at",
        "accounting/ledger.py",
        "if not after.epsilon <= budget.epsilon:",
        "if False:",
        LEDGER,
    ),
    Defect(
        "ledger: no lock while the budget is checked",
        "accounting/ledger.py",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "fcntl.flock(file, fcntl.LOCK_SH)",
        LEDGER,
    ),
    Defect(
        "Laplace noise of half the scale",
        "mechanisms/laplace.py",
        "discrete_laplace(self.source, scale, n)",
        "discrete_laplace(self.source, scale // 2, n)",
        ("mechanisms/test_laplace.py",),
    ),
    Defect(
        "Gaussian noise of half the scale",
        "mechanisms/gaussian.py",
        "math.ceil(math.sqrt(sigma * sigma + 16))",
        "math.ceil(sigma / 2)",
        ("mechanisms/test_gaussian.py",),
    ),
    Defect(
        "ADePT: ℓ2 clipping with an ℓ1 sensitivity of 2C",
        "mechanisms/sensitivity.py",
        "cls(bound * math.sqrt(dimension), bound)",
        "cls(bound, bound)",
        ("mechanisms/test_sensitivity.py",),
    ),
    Defect(
        "the classical Gaussian at ε ≥ 1",
        "mechanisms/gaussian.py",
        "if epsilon >= 1:",
        "if False:",
        ("mechanisms/test_refusals.py", "mechanisms/test_gaussian.py"),
    ),
    Defect(
        "noise from a seeded generator that the statement calls entropy",
        "mechanisms/randomness.py",
        "kind = NoiseSource.FIXED_SEED",
        "kind = NoiseSource.OS_ENTROPY",
        ("mechanisms/test_laplace.py",),
    ),
    Defect(
        "clipping: the rounding of bfloat16 not counted",
        "training/clipping.py",
        "slack = unit * jnp.sqrt(",
        "slack = 0 * jnp.sqrt(",
        CLIPPING,
    ),
    Defect(
        "clipping: no cross term between embedding and tied output layer",
        "training/clipping.py",
        "squared += pair if second is first else 2 * pair",
        "squared += pair if second is first else 0 * pair",
        CLIPPING,
    ),
    Defect(
        "clipping: the uses of a shared weight taken for separate weights",
        "training/clipping.py",
        "lefts, rights = _gram(left, left), _gram(right, right)",
        "lefts, rights = _gram(left, left) * jnp.eye(positions), _gram(right, right)",
        CLIPPING,
    ),
    Defect(
        "clipping: padding counted",
        "training/clipping.py",
        "weights * jnp.minimum(1.0, clip_norm",
        "jnp.minimum(1.0, clip_norm",
        CLIPPING,
    ),
    Defect(
        "clipping: a gradient that is no number spoils the sum",
        "training/clipping.py",
        "jnp.all(sound), lambda: summed(False), lambda: summed(True)",
        "jnp.all(sound), lambda: summed(False), lambda: summed(False)",
        CLIPPING,
    ),
    Defect(
        "clipping: a weight that no layer notes is trained unclipped",
        "training/clipping.py",
        "        if key not in noted:",
        "        if False:",
        CLIPPING,
    ),
    Defect(
        "clipping: the examples of one record clipped one by one",
        "training/clipping.py",
        "records = losses.shape[0] // examples_per_record",
        "records = losses.shape[0]",
        CLIPPING,
    ),
    Defect(
        "an attacker's success without δ",
        "guarantee.py",
        "return (1 + self.delta * shrunk) / (1 + shrunk)",
        "return 1 / (1 + shrunk)",
        ("test_guarantee.py",),
    ),
)


def noticed(defect: Defect) -> str:
    """The first test that fails with the defect in place, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(source, copy / name)
        file = copy / "src/dpnlp" / defect.file
        text = file.read_text()
        if text.count(defect.old) != 1:
            sys.exit(f"{defect.what}: the text to replace stands {text.count(defect.old)} times in {defect.file}.")
        file.write_text(text.replace(defect.old, defect.new))
        paths = [f"tests/{path}" for path in defect.tests]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
    failed = (line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(failed, "").removeprefix("FAILED ").split(" - ")[0]


def main() -> int:
    """Prints a table, and fails where a defect was missed."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [defect for defect in DEFECTS if word in f"{defect.what} {defect.file}"]
    missed = 0
    for defect in chosen:
        by = noticed(defect)
        missed += not by
        print(f"{'caught' if by else 'MISSED'}  {defect.what}  ({by or 'no test failed'})", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted defects are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
