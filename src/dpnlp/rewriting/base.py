"""What a rewriter is: texts in, texts out, and a promise for each text by itself.

The promise is local: a text is randomized before it leaves its owner, and any two texts are neighbours. A new method is
one file with a `Rewriter` in it.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from dpnlp import checks
from dpnlp.accounting import accountant
from dpnlp.accounting.accountant import Accountant
from dpnlp.events import Event, Repeated
from dpnlp.guarantee import Adjacency, Guarantee, NoiseSource, Term, Trust, Unit, round_up
from dpnlp.mechanisms.base import Mechanism
from dpnlp.runs.privacy import Origin, new_id
from dpnlp.runs.provenance import PUBLIC, Provenance


class Rewriter(ABC):
    """A method with its settings. `mechanism` is what randomizes one text; None where nothing does.

    `provenance` is what the rewriter was made of. Where that has a cost, it is in every guarantee.
    """

    mechanism: Mechanism | None
    provenance: Provenance = PUBLIC

    @abstractmethod
    def rewrite(self, texts: Sequence[str]) -> list[str]:
        """One text for each, in their order. What comes out for one does not depend on the others."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The rewriting of one text, as an accountant sees it under replace."""

    @property
    def unit(self) -> Unit:
        """What any exchange of is hidden: the whole text, unless a method promises less."""
        return Unit.TEXT

    @property
    def carried(self) -> float:
        """The share of texts that are rewritten by what they say, the rest being drawn blindly, for whoever learns from
        them; 1 where the two cannot be told apart.
        """
        return 1.0

    def made_of(self, provenance: Provenance) -> Self:
        """The same rewriter, made of this."""
        made = copy.copy(self)
        object.__setattr__(made, "provenance", provenance)
        return made

    def guarantee(self) -> Guarantee:
        """What the rewriting of one text promises, with what the rewriter was made of."""
        if self.mechanism is None:
            return self._whole(unprotected(self.unit), self.event)
        return self._whole(self.mechanism.guarantee(self.unit, Adjacency.REPLACE, Trust.LOCAL), self.event)

    def guarantee_for_person(self, texts: int, delta: float | None = None) -> Guarantee:
        """What a person is promised who has at most so many texts, all of which are rewritten, one by one.

        They cost k·ε and k·δ, or less where their losses are composed at the δ that is asked for. A person's texts that
        are joined into one cost ε.
        """
        k = checks.count("texts", texts)
        return self._whole(self.made_of(PUBLIC)._of_person(k, delta), Repeated(self.event, k))

    def _whole(self, own: Guarantee, event: Event) -> Guarantee:
        """What is promised of the texts and of all that the rewriter was made of."""
        if self.provenance.is_public:
            return own
        return self.provenance.promising(Origin(new_id(), "rewriting", event, own), {}).guarantee

    def _of_person(self, k: int, delta: float | None) -> Guarantee:
        one = self.guarantee()
        if self.unit is not Unit.TEXT or not one.is_private:
            return unprotected(Unit.USER)
        added = replace(
            one,
            epsilon=k * one.epsilon,
            delta=k * one.delta,
            unit=Unit.USER,
            accountant=Term("basic-composition"),
            steps=k,
        )
        if delta is None or k == 1:
            return added
        composed = round_up(accountant.epsilon(Repeated(self.event, k), delta, Adjacency.REPLACE), accountant.DIGITS)
        if added.delta <= delta and added.epsilon <= composed:
            return added
        return replace(added, epsilon=composed, delta=delta, accountant=Term(Accountant.PLD))


class LabelledRewriter(Rewriter):
    """A method that can draw one of `labels` labels together with a text, so that its ε is for both."""

    labels: int

    @abstractmethod
    def with_labels(self, labels: int) -> "LabelledRewriter":
        """The same method with so many labels."""

    @abstractmethod
    def rewrite_labelled(self, texts: Sequence[str], labels: Sequence[int]) -> tuple[list[str], list[int]]:
        """A text and a label for each, in their order; labels are numbers from 0."""


def unprotected(unit: Unit) -> Guarantee:
    """No promise at all: ε = ∞."""
    return Guarantee(
        epsilon=math.inf,
        delta=0.0,
        unit=unit,
        adjacency=Adjacency.REPLACE,
        trust=Trust.LOCAL,
        mechanism=Term("none"),
        noise_source=NoiseSource.OS_ENTROPY,
    )
