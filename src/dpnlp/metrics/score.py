"""What a metric gives, and what the metrics that compare texts with references take."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from dpnlp.checks import BadInput

Texts = Sequence[str]
References = Sequence[str] | Sequence[Sequence[str]]
"""For each hypothesis its reference, or several of them."""


@dataclass(frozen=True)
class Score:
    """A number, and what one has to know to make it again."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.signature} = {self.value:.2f}"


def signed(name: str, value: float, **how: object) -> Score:
    """A score of dpnlp's own making, with a signature after the manner of sacreBLEU: name|key:value|…|version:…"""
    said = "".join(f"|{key}:{value}" for key, value in how.items())
    return Score(value, f"{name}{said}|version:dpnlp-{version('dpnlp')}")


def aligned(**lists: Sequence[object]) -> None:
    """Refuses lists that do not go line by line with one another, or that are empty."""
    for name, given in lists.items():
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise BadInput(f"{name} = {given!r:.60}: it must be a list, with an entry for each line; give a list.")
    if len({len(given) for given in lists.values()}) > 1:
        lengths = " and ".join(f"{name} = {len(given)} lines" for name, given in lists.items())
        raise BadInput(
            f"{lengths}: there must be as many of the one as of the other; compare what belongs to the same data."
        )
    for name, given in lists.items():
        if not given:
            raise BadInput(f"{name} = 0 lines: a score needs at least one; give what is to be scored.")


def text(name: str, line: int, given: object) -> str:
    """What a line holds, which must be a string."""
    if not isinstance(given, str):
        raise BadInput(f"{name}, line {line} = {given!r:.60}: it must be a text; give it as a string.")
    return given


def paired(hypotheses: Texts, references: References) -> list[tuple[str, list[str]]]:
    """Each hypothesis with its references, one or more."""
    aligned(hypotheses=hypotheses, references=references)
    pairs = []
    for line, (hypothesis, own) in enumerate(zip(hypotheses, references, strict=True), start=1):
        several = own if isinstance(own, Sequence) and not isinstance(own, str) else [own]
        if not several:
            raise BadInput(f"references, line {line} = []: each line needs at least one; give its reference.")
        pairs.append((text("hypotheses", line, hypothesis), [text("references", line, one) for one in several]))
    return pairs
