"""`dpnlp audit mechanism`: is a claim of (ε, δ) broken? Ours by name, or any function, command or rewriter."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpnlp import mechanisms
from dpnlp.audit import black_box
from dpnlp.audit.black_box import Audit, Release
from dpnlp.audit.scores import Outputs
from dpnlp.checks import BadInput
from dpnlp.cli.config import option, warn
from dpnlp.cli.output import print_facts, print_json, print_table
from dpnlp.cli.ranges import COUNT, DELTA_OR_0, FREE, LENGTH, PROMISED, SEED, SIZE, between
from dpnlp.foreign import parse_json
from dpnlp.guarantee import percent
from dpnlp.mechanisms.base import Mechanism
from dpnlp.mechanisms.gaussian import Calibration
from dpnlp.mechanisms.randomness import seeded

if TYPE_CHECKING:
    from dpnlp.mechanisms.randomness import Source

VIOLATED = 3
"""The exit code where a claim is found broken."""

_OURS = "the mechanism"

_AT_ONCE = 1024
"""Outputs of other people's mechanisms between two looks at the progress bar."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How much is drawn, and how sure the verdict is."""

    trials: int = option(
        10_000, within=COUNT, help="Outputs of each of the two inputs; half of them test", group="the test"
    )
    confidence: float = option(
        0.999,
        within=between(0, 1, above=True, below=True),
        help="A claim that holds is called violated with a chance of at most 1 less this",
        group="the test",
    )
    seed: int | None = option(
        None,
        within=SEED,
        help="Makes the audit of a function that takes a seed, or of one of ours, repeatable",
        group="the test",
    )
    json: bool = option(False, help="Print one JSON object instead of words", group="output")

    def judge(self, release: Release, first: Any, second: Any, epsilon: float, delta: float) -> int:
        """The exit code, after the verdict was printed."""
        found = black_box.audit(release, first, second, epsilon, delta, trials=self.trials, confidence=self.confidence)
        if self.json:
            print_json(found.to_json())
        else:
            _print(found)
        return VIOLATED if found.violated else 0


@dataclass(frozen=True, kw_only=True)
class BlackBox(Trial):
    """Test the claim of any mechanism. It is drawn from many times on two neighbouring inputs, and half of what comes
    out is used to find an event that tells them apart; on the other half it is counted how often this comes about. Give
    one of --python, --command and --rewriter. The exit code is 3 where the claim is violated, and 0 where what was
    seen is consistent with it, which proves nothing about other inputs."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit mechanism laplace --sensitivity 1 --epsilon 1",
        "dpnlp audit mechanism --python survey:noisy_count --first '[1, 1, 0]' --second '[1, 1, 1]' --epsilon 1",
        "dpnlp audit mechanism --command './anonymize --eps 2' --batch 500 --first yes --second no --epsilon 2",
        "dpnlp audit mechanism --rewriter rewriters/echo --first 'play jazz' --second 'will it rain' --epsilon 3",
    )

    python: str | None = option(
        None,
        help="A function, as module:function, that gives a number, a list or a text for an input; where it takes a "
        "second argument it gets a new seed each time",
        group="the mechanism",
    )
    command: str | None = option(
        None, help="A command that reads an input and writes an output; it is run once for each", group="the mechanism"
    )
    batch: int | None = option(
        None,
        within=SIZE,
        help="Ask for so many outputs at once: the function gets a list of inputs, the command a line for each",
        group="the mechanism",
    )
    rewriter: Path | None = option(
        None, help="The folder of a rewriter; it is used with --epsilon and --delta", group="the mechanism"
    )
    latents: bool = option(
        False, help="Audit the noisy vectors behind a rewriter's texts, which tell more", group="the mechanism"
    )
    first: str = option(within=FREE, help="One input: JSON, or else text; for a rewriter a text", group="the claim")
    second: str = option(
        within=FREE, help="Its neighbour, which the claim says cannot be told from it", group="the claim"
    )
    epsilon: float = option(within=PROMISED, help="The ε that is claimed", group="the claim")
    delta: float = option(0.0, within=DELTA_OR_0, help="The δ that is claimed", group="the claim")

    def run(self) -> int:
        """The verdict on stdout."""
        given = [name for name in ("python", "command", "rewriter") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"--{name}" for name in given) or "none"
            raise BadInput(f"--python, --command, --rewriter: exactly one must be given, not {found}.")
        if self.rewriter is not None:
            return self._of_rewriter(self.rewriter)
        if self.latents:
            raise BadInput("--latents: only a rewriter has them; leave it out.")
        if self.command is not None and self.seed is not None:
            raise BadInput("--seed: a command draws its own noise, which no seed of ours reaches; leave it out.")
        from dpnlp.audit.programs import command_of, function_of

        if self.python is not None:
            release = function_of(self.python, self.batch, seeded(self.seed))
        else:
            release = command_of(self.command or "", self.batch)
        with self._watched(release) as watched:
            return self.judge(watched, _value(self.first), _value(self.second), self.epsilon, self.delta)

    def _of_rewriter(self, folder: Path) -> int:
        from dpnlp.audit.neighbours import latents_of, texts_of
        from dpnlp.guarantee import Unit
        from dpnlp.rewriting import folders

        if self.batch is not None:
            raise BadInput("--batch: a rewriter chooses by itself how many texts it rewrites at once; leave it out.")
        rewriter = folders.load(folder, self.epsilon, self.delta, seeded(self.seed))
        promised = rewriter.guarantee()
        if rewriter.unit is not Unit.TEXT:
            warn(f"the promise is for one {rewriter.unit}: give two texts that differ in no more than that.")
        release = latents_of(rewriter) if self.latents else texts_of(rewriter)
        with self._watched(release) as watched:
            return self.judge(watched, self.first, self.second, promised.epsilon, promised.delta)

    @contextmanager
    def _watched(self, release: Release) -> Iterator[Release]:
        """The same with a progress bar, for what may be slow."""
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

        console, step = Console(stderr=True), max(_AT_ONCE, self.batch or 0)
        columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("drawing", total=2 * self.trials)

            def watched(given: Any, count: int) -> Outputs:
                parts: list[Outputs] = []
                for start in range(0, count, step):
                    parts.append(release(given, min(step, count - start)))
                    bar.update(task, advance=len(parts[-1]))
                return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [*chain.from_iterable(parts)]

            yield watched


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


# Ours, by name


@dataclass(frozen=True, kw_only=True)
class Named(Trial, ABC):
    """One of our mechanisms on the two neighbours that are hardest to keep apart."""

    claimed_epsilon: float | None = option(
        None, within=PROMISED, help="Test this ε instead of the one that --epsilon stands for", group="the test"
    )

    @abstractmethod
    def mechanism(self, source: "Source") -> Mechanism:
        """The mechanism with its parameters."""

    @property
    def neighbours(self) -> dict[str, Any]:
        """What else the two neighbours depend on."""
        return {}

    def run(self) -> int:
        """The verdict on stdout."""
        from dpnlp.audit.neighbours import farthest

        mechanism = self.mechanism(seeded(self.seed))
        claimed = mechanism.epsilon if self.claimed_epsilon is None else self.claimed_epsilon
        return self.judge(*farthest(mechanism, **self.neighbours), claimed, mechanism.delta)


@dataclass(frozen=True, kw_only=True)
class Vector(Named):
    """Noise on all entries of a vector."""

    entries: int = option(
        1, within=SIZE, help="Entries of the vector; the two inputs differ in all of them", group=_OURS
    )

    @property
    def neighbours(self) -> dict[str, Any]:
        return {"size": self.entries}


@dataclass(frozen=True, kw_only=True)
class AuditRandomizedResponse(Named):
    """Test randomized response: the two inputs are two of the answers."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit mechanism randomized-response --epsilon 1",
        "dpnlp audit mechanism randomized-response --epsilon 1 --claimed-epsilon 0.5",
    )

    epsilon: float = option(within=PROMISED, help="The ε of one answer", group=_OURS)
    categories: int = option(2, within=between(2, 2**20), help="How many answers there are to choose from", group=_OURS)

    def mechanism(self, source: "Source") -> Mechanism:
        return mechanisms.RandomizedResponse(self.epsilon, self.categories, source)


@dataclass(frozen=True, kw_only=True)
class AuditSubsetResponse(Named):
    """Test subset response: the two inputs prefer candidates that are as different as can be."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit mechanism subset-response --epsilon 1 --candidates 10 --preferred 3",
    )

    epsilon: float = option(within=PROMISED, help="The ε of one choice", group=_OURS)
    candidates: int = option(within=between(2, 2**20), help="How many candidates there are", group=_OURS)
    preferred: int = option(1, within=SIZE, help="How many of them an answer prefers", group=_OURS)

    def mechanism(self, source: "Source") -> Mechanism:
        return mechanisms.SubsetResponse(self.epsilon, self.candidates, self.preferred, source)


@dataclass(frozen=True, kw_only=True)
class AuditLaplace(Vector):
    """Test the Laplace mechanism: the two inputs are 0 and the whole ℓ1 sensitivity."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit mechanism laplace --sensitivity 1 --epsilon 1",
        "dpnlp audit mechanism laplace --sensitivity 1 --epsilon 1 --claimed-epsilon 0.7",
    )

    sensitivity: float = option(
        within=LENGTH, help="The ℓ1 sensitivity: how far one record can move the answer", group=_OURS
    )
    epsilon: float = option(within=PROMISED, help="The ε of one answer", group=_OURS)

    def mechanism(self, source: "Source") -> Mechanism:
        return mechanisms.Laplace(self.sensitivity, self.epsilon, source)


@dataclass(frozen=True, kw_only=True)
class AuditGaussian(Vector):
    """Test the Gaussian mechanism: the two inputs are 0 and the whole ℓ2 sensitivity."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit mechanism gaussian --sensitivity 1 --epsilon 1 --delta 0.01 --trials 100000",
    )

    sensitivity: float = option(
        within=LENGTH, help="The ℓ2 sensitivity: how far one record can move the answer", group=_OURS
    )
    epsilon: float = option(within=PROMISED, help="The ε of one answer", group=_OURS)
    delta: float = option(within=DELTA_OR_0, help="The δ of one answer", group=_OURS)
    calibration: Calibration = option(Calibration.ANALYTIC, help="Which formula σ comes from", group=_OURS)

    def mechanism(self, source: "Source") -> Mechanism:
        return mechanisms.Gaussian(self.sensitivity, self.epsilon, self.delta, self.calibration, source)


@dataclass(frozen=True, kw_only=True)
class AuditMetric(Vector):
    """Test metric privacy: the two inputs are as far apart as the diameter."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp audit mechanism metric --diameter 3 --epsilon 2 --entries 3",)

    diameter: float = option(within=LENGTH, help="The largest ℓ2 distance between two answers", group=_OURS)
    epsilon: float = option(within=PROMISED, help="The ε of two answers at that distance", group=_OURS)

    def mechanism(self, source: "Source") -> Mechanism:
        return mechanisms.Metric(self.diameter, self.epsilon, source)


@dataclass(frozen=True, kw_only=True)
class AuditExponential(Named):
    """Test the exponential mechanism or report-noisy-max: from one input to the other, one candidate loses all that a
    record can take from it, and all others gain as much."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit mechanism exponential --sensitivity 1 --epsilon 2",
        "dpnlp audit mechanism exponential --sensitivity 1 --epsilon 2 --noisy-max",
    )

    sensitivity: float = option(within=LENGTH, help="How far one record can move a candidate's score", group=_OURS)
    epsilon: float = option(within=PROMISED, help="The ε of one choice", group=_OURS)
    others: int = option(10, within=SIZE, help="How many candidates there are besides the one", group=_OURS)
    monotone: bool = option(
        False, help="A record that comes or goes moves all scores the same way, as counts do", group=_OURS
    )
    noisy_max: bool = option(False, help="Report-noisy-max instead of the exponential mechanism", group=_OURS)

    @property
    def neighbours(self) -> dict[str, Any]:
        return {"size": self.others, "noisy_max": self.noisy_max}

    def mechanism(self, source: "Source") -> Mechanism:
        return mechanisms.Exponential(self.sensitivity, self.epsilon, self.monotone, source)


def _print(found: Audit) -> None:
    print_facts(
        "Audit",
        {
            "verdict": found.verdict,
            "claimed": f"ε = {found.epsilon:g} at δ = {found.delta:g}",
            "found": f"ε ≥ {found.bound:.4g}, with a confidence of {percent(found.confidence, 6)}",
            "could be found": f"up to ε = {found.ceiling:.4g}, by {found.trials:,} outputs of each input",
        },
    )
    print_table(
        f"Hits among {found.findings[0].trials:,} outputs of each input",
        ["event", "first", "second", "ε ≥"],
        [
            [
                f"{'' if one.of == 'first' else 'negative '}score by {one.score} ≥ {one.threshold:.4g}",
                *(f"{hits:,}" for hits in ((one.hits, one.other_hits)[:: 1 if one.of == "first" else -1])),
                f"{one.bound:.4g}",
            ]
            for one in found.findings
        ],
        found.statement(),
    )
