"""What a metric gives, and what the metrics that compare texts with references take."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def paired(hypotheses: Texts, references: References) -> list[tuple[str, list[str]]]:
    """Each hypothesis with its references, one or more."""
    for name, given in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise BadInput(f"{name} = {given!r:.60}: it must be a list, with an entry for each line; give a list.")
    if len(hypotheses) != len(references):
        raise BadInput(
            f"hypotheses = {len(hypotheses)} lines and references = {len(references)} lines: there must be as many of "
            "the one as of the other; compare the texts of the same data."
        )
    if not hypotheses:
        raise BadInput("hypotheses = 0 lines: a score needs at least one; give the texts that are to be scored.")
    pairs = []
    for line, (hypothesis, own) in enumerate(zip(hypotheses, references, strict=True), start=1):
        several = own if isinstance(own, Sequence) and not isinstance(own, str) else [own]
        if not several:
            raise BadInput(f"references, line {line} = []: each line needs at least one; give its reference.")
        for name, text in (("hypotheses", hypothesis), *(("references", one) for one in several)):
            if not isinstance(text, str):
                raise BadInput(f"{name}, line {line} = {text!r:.60}: it must be a text; give it as a string.")
        pairs.append((hypothesis, list(several)))
    return pairs
