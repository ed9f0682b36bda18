"""`dpnlp audit RUN`: attacks on a finished run by someone who has its training data, who knows most of all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpnlp.checks import BadInput
from dpnlp.cli.audit import VIOLATED
from dpnlp.cli.config import option, warn
from dpnlp.cli.output import figure, print_facts, print_json, print_table
from dpnlp.cli.ranges import ATTACKED, FEW_OR_0, SEED, SIZE, SIZE_OR_0
from dpnlp.guarantee import Adjacency, percent
from dpnlp.runs.folder import ATTACKS, NOT_COVERED_BY

if TYPE_CHECKING:
    from dpnlp.audit.lira import Shadows
    from dpnlp.audit.membership import Scores
    from dpnlp.audit.units import Units
    from dpnlp.cli.attacked import Attacked
    from dpnlp.guarantee import Guarantee
    from dpnlp.runs.folder import Run

FEWEST_SHADOWS = 4
"""With fewer shadow runs hardly any record is in two of them and out of two."""

SURE = 0.999
"""The confidence with which a promise is called broken."""

_DELTA = 1e-5
"""At which ε is spoken of where a run promises nothing."""

_NOT_DRAWN = (
    "Who was trained on in this run was not drawn at random: members may differ from the others in more than that, and "
    "nothing follows for its ε."
)
_PROVES_NOTHING = (
    "An attack that fails proves nothing: a stronger one, or the same on other records, may succeed. Only the "
    "guarantee speaks of all attacks."
)

Finding = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """Attack a finished run of your own, with its training data at hand: can members be told from others by how well
    the model knows them, does it write training texts out, and what does a classifier take for each label? What is
    found by looking at the training data is not covered by the guarantee of the run; it lies apart in RUN/not-covered,
    and report.html shows nothing of it. The exit code is 3 where shadow runs refute the ε that the run promises."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp audit runs/first",
        "dpnlp audit runs/first --attacks membership --shadows 16 --records 200",
        "dpnlp audit runs/first --others more.jsonl --json",
    )

    folder: Path = option(help="The folder of a finished run", positional=True)
    attacks: tuple[Literal["membership", "extraction", "inversion"], ...] = option(
        (), help="Which attacks; by default all that fit what the run has learned"
    )
    others: tuple[str, ...] = option(
        (), help="Records that the run has not learned from, as its training data are; by default its test data"
    )
    records: int = option(
        500, within=ATTACKED, help="How many members at most, and as many others", group="who is a member"
    )
    reference: str | None = option(
        None,
        help="A run or model that has not seen the records, to compare with; by default what the run started from",
        group="who is a member",
    )
    shadows: int = option(
        0,
        within=FEW_OR_0,
        help="Runs to compare with that are trained as this one was, each on another half of the attacked records; at "
        f"least {FEWEST_SHADOWS}, and 0 has none",
        group="who is a member",
    )
    prompts: int = option(
        100, within=ATTACKED, help="How many training texts at most, and as many others", group="what comes out"
    )
    prefix: int = option(
        4, within=SIZE, help="The words of a text that a language model is given", group="what comes out"
    )
    samples: int = option(
        200, within=SIZE_OR_0, help="Texts that a language model writes without a prompt", group="what comes out"
    )
    show_texts: bool = option(
        False, help="Write training texts that come out into RUN/not-covered, in clear", group="what comes out"
    )
    length: int = option(
        8, within=SIZE, help="The tokens of a text that is sought for a label", group="what is a label"
    )
    seed: int = option(
        0, within=SEED, help="Draws the records and all else that is drawn; another shows how much is chance"
    )
    json: bool = option(False, help="Print one JSON object instead of words", group="output")

    def run(self) -> int:
        """What was found on stdout, and in the run's folder."""
        from dpnlp.cli.attacked_tasks import attacked
        from dpnlp.runs.page import page_of_audit, page_of_run

        if 0 < self.shadows < FEWEST_SHADOWS:
            raise BadInput(f"shadows = {self.shadows}: it must be 0, or at least {FEWEST_SHADOWS}; train more of them.")
        target = attacked(self.folder, self.others)
        chosen, found = self._fitting(target), dict[str, Finding]()
        run = target.run
        for attack in chosen:
            found[attack] = getattr(self, f"_{attack}")(target)
            run.add_audit(attack, found[attack])
        if _looked(found) or run.audit_report.exists():
            run.write_audit_report(page_of_audit(run))
        if any(ATTACKS[attack] for attack in chosen):
            run.write_report(page_of_run(run))
        if self.json:
            about = {"run": str(run.path), "signature": run.guarantee.signature()}
            print_json(about | ({"not_covered": NOT_COVERED_BY} if _looked(found) else {}) | found)
        else:
            _print(run, found)
        return VIOLATED if found.get("membership", {}).get("violated") else 0

    def _fitting(self, target: "Attacked") -> tuple[str, ...]:
        for attack in self.attacks:
            if attack not in target.attacks:
                known = ", ".join(target.attacks)
                raise BadInput(f"attacks = {attack}: what this run has learned is attacked by {known}; leave it out.")
        return tuple(attack for attack in target.attacks if attack in (self.attacks or target.attacks))

    # Who is a member?

    def _membership(self, target: "Attacked") -> Finding:
        from dpnlp.audit.membership import LEVELS, Membership, by_loss, calibrated

        drawn, promised = target.drawn(self.records, self.seed), target.run.guarantee
        both, members, delta = drawn.attacked, drawn.are_members, promised.delta or _DELTA
        with _busy("asking the model for its losses"):
            losses = target.own_losses(target.task, both)
        attacks = [Membership("loss", by_loss(losses), members)]
        if (reference := target.reference(self.reference)) is not None:
            with _busy("asking the reference for its losses"):
                others = target.own_losses(reference, both)
            attacks.append(Membership("loss beside a reference", calibrated(losses, others), members))
        violated, notes = False, list[str]()
        if self.shadows:
            shadows = self._shadow_runs(target, drawn)
            ratio = shadows.attack(target.confidences(losses))
            attacks.append(Membership(f"likelihood ratio of {self.shadows} shadow runs", ratio, members))
            in_turn = Membership(
                "likelihood ratio, on each shadow run", shadows.each_in_turn(), shadows.members, drawn=True
            )
            attacks.append(in_turn)
            bound = in_turn.epsilon(delta, SURE)
            violated = _breaks(bound, promised)
            notes = [_of_shadows(bound, delta, promised), _SHADOWS.format(self.shadows)]
        return {
            "unit": str(target.unit),
            "members": len(drawn.members),
            "others": len(drawn.others),
            "shadows": self.shadows,
            "attacks": [attack.to_json(delta) for attack in attacks],
            "promised": [promised.detection(level) for level in LEVELS] if promised.is_private else [],
            "violated": violated,
            "notes": [*notes, _NOT_DRAWN, _PROVES_NOTHING],
        }

    def _shadow_runs(self, target: "Attacked", drawn: "Units[Any]") -> "Shadows":
        import numpy as np

        from dpnlp.audit import lira
        from dpnlp.cli.shadow_runs import shadow_models

        if target.asked.privacy.is_private:
            warn(_SHADOWS.format(self.shadows))
        coins = lira.drawn(len(drawn.attacked), self.shadows, self.seed)
        scores: list[Scores] = []
        for number, model in enumerate(shadow_models(target, drawn, coins, self.seed), start=1):
            with _busy(f"asking shadow run {number} of {self.shadows} for its losses"):
                scores.append(target.confidences(target.losses(target.task, model, drawn.attacked)))
        return lira.Shadows(np.array(scores), coins)

    # What comes out?

    def _extraction(self, target: Any) -> Finding:
        from dpnlp.audit.extraction import Completion, Extraction, Unprompted, compressed, ratios
        from dpnlp.audit.units import numbered

        drawn = target.drawn(self.records, self.seed)
        sides = [self._prompted(target, numbered(side)[0]) for side in (drawn.members, drawn.others)]
        count = min(self.prompts, *map(len, sides))
        self._refuse_few(count)
        prompts, rests = zip(*(both for side in sides for both in side[:count]), strict=True)
        reference = target.reference(self.reference)

        def ranked(prompts: Sequence[str], written: Sequence[str]) -> "Scores":
            own = target.surprise(target.task, prompts, written)
            other = compressed(written) if reference is None else target.surprise(reference, prompts, written)
            return ratios(other, own)

        with _busy("letting the model write"):
            written = target.written(prompts)
            completions = [Completion(*both) for both in zip(rests, written, strict=True)]
            found = Extraction(
                target.given(self.prefix),
                tuple(completions[:count]),
                tuple(completions[count:]),
                ranked(prompts, written),
            ).to_json(texts=self.show_texts)
            own = target.unprompted(self.samples, self.seed)
            if own:
                texts = [
                    [target.text(record) for record in numbered(side)[0]] for side in (drawn.members, drawn.others)
                ]
                few = min(map(len, texts))
                everything = [target.text(record) for record in target.training]
                unprompted = Unprompted.of(
                    own, ranked([""] * len(own), own), everything, *(side[:few] for side in texts)
                )
                found["unprompted"] = unprompted.to_json()
        ranks = "zlib's compression" if reference is None else "a reference model"
        return found | {"ranked_by": ranks}

    def _prompted(self, target: Any, records: Sequence[Any]) -> list[tuple[str, str]]:
        """Prompts, and what comes after them, of those records that have enough of it."""
        from dpnlp.rewriting.leakage import N, words_of

        both = (target.prompted(record, self.prefix) for record in records)
        return [(prompt, rest) for prompt, rest in both if len(words_of(rest)) >= N]

    def _refuse_few(self, texts: int) -> None:
        from dpnlp.audit.units import LEAST
        from dpnlp.rewriting.leakage import N

        if texts < LEAST:
            raise BadInput(
                f"extraction: only {texts} texts on one of the sides have {N} words after a prompt, and {LEAST} are "
                "needed; take a shorter --prefix, or choose other --attacks."
            )

    # What is a label?

    def _inversion(self, target: "Attacked") -> Finding:
        from dpnlp.audit.inversion import Search, inverted

        with _busy("looking for the texts that the model believes in most"):
            found = inverted(target.task, Search(length=self.length), self.seed)
        return {
            "labels": [one.to_json() for one in found],
            "notes": [
                "Nothing but the model was looked at, so that the guarantee of the run covers this, if there is one. "
                "It is what the model makes of a label, and no text of the training set.",
                _PROVES_NOTHING,
            ],
        }


_SHADOWS = (
    "{} shadow runs learn from the training data for this. They are not released, so that no ledger is charged for "
    "them, and what they show is not covered by the guarantee."
)


def _breaks(bound: float, claimed: "Guarantee") -> bool:
    """Whether so large an ε of who is in or out breaks a promise, which may be about who is exchanged for whom."""
    return bound > claimed.epsilon and claimed.adjacency is not Adjacency.REPLACE


def _of_shadows(bound: float, delta: float, claimed: "Guarantee") -> str:
    """What the coins of shadow runs say of the promise, where there is one."""
    breaks = "breaks" if _breaks(bound, claimed) else "does not break"
    verdict = f" That {breaks} the promise of ε = {figure(claimed.epsilon)}." if claimed.is_private else ""
    return (
        "Each shadow run drew its records by fair coins, so that attacks on them test a promise: training with these "
        f"settings has ε ≥ {bound:.2f} at δ = {delta:g}, with {percent(SURE, 6)} confidence.{verdict}"
    )


@contextmanager
def _busy(what: str) -> Iterator[None]:
    """Says what is being done, to whoever sits before a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def _looked(found: Mapping[str, Finding]) -> bool:
    """Whether one of the attacks has looked at the training set."""
    return not all(ATTACKS[attack] for attack in found)


def _print(run: "Run", found: Mapping[str, Finding]) -> None:
    from dpnlp.runs.attacks import SHOWN

    promised = run.guarantee
    claim = f"ε = {figure(promised.epsilon)} at δ = {promised.delta:g} for one {promised.unit}"
    uncovered = _looked(found)
    page = run.audit_report if uncovered else run.report
    facts = {"promised": claim if promised.is_private else "nothing", "page": str(page)}
    print_facts(f"Audit of {run.name}", facts)
    for attack, finding in found.items():
        shown = SHOWN[attack](finding)
        said = " ".join([shown.lead, *shown.notes])
        print_table(shown.title, shown.heads, shown.rows, said, shown.figures_from)
    if uncovered:
        print(NOT_COVERED_BY)
