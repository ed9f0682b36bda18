"""What a text costs, and what a person pays who has several."""

import math
from dataclasses import dataclass

import pytest

from dpnlp.accounting import pld
from dpnlp.events import NonPrivate, Repeated
from dpnlp.guarantee import Adjacency, Trust, Unit
from dpnlp.mechanisms import Gaussian, SubsetResponse
from dpnlp.mechanisms.base import Mechanism
from dpnlp.rewriting.base import Rewriter


@dataclass(frozen=True)
class Reversed(Rewriter):
    """Texts from their end to their beginning, as if a mechanism had been used."""

    mechanism: Mechanism | None

    def rewrite(self, texts):
        return [text[::-1] for text in texts]

    @property
    def event(self):
        match self.mechanism:
            case None:
                return NonPrivate()
            case Gaussian():
                return self.mechanism.event(Adjacency.REPLACE)
        return self.mechanism.event()


PURE, NOISY = Reversed(SubsetResponse(0.5, 100, 10)), Reversed(Gaussian(2.0, 0.5, 1e-6))


@pytest.mark.parametrize("rewriter", [PURE, NOISY])
def test_the_promise_is_local_and_for_a_whole_text(rewriter):
    promised = rewriter.guarantee()
    assert (promised.epsilon, promised.delta) == (0.5, rewriter.mechanism.delta)
    assert (promised.unit, promised.adjacency, promised.trust) == (Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)


@pytest.mark.parametrize("rewriter", [PURE, NOISY])
def test_a_person_pays_for_each_text(rewriter):
    promised = rewriter.guarantee_for_person(7)
    assert promised.epsilon == pytest.approx(3.5)
    assert promised.delta == pytest.approx(7 * rewriter.mechanism.delta)
    assert (promised.unit, promised.steps) == (Unit.USER, 7)


@pytest.mark.parametrize("rewriter", [PURE, NOISY])
def test_many_texts_cost_less_than_their_sum_at_a_delta(rewriter):
    promised = rewriter.guarantee_for_person(50, delta=1e-4)
    composed = pld.epsilon(Repeated(rewriter.event, 50), 1e-4, Adjacency.REPLACE)
    assert composed <= promised.epsilon <= 1.001 * composed
    assert promised.epsilon < 25
    assert (promised.delta, str(promised.accountant)) == (1e-4, "pld")


def test_few_texts_are_added_up_where_that_costs_less():
    assert str(PURE.guarantee_for_person(2, delta=1e-9).accountant) == "basic-composition"
    assert PURE.guarantee_for_person(1, delta=1e-9).epsilon == 0.5


def test_without_a_mechanism_nothing_is_promised():
    assert Reversed(None).guarantee().epsilon == math.inf
    assert Reversed(None).guarantee_for_person(3).epsilon == math.inf


def test_all_texts_are_rewritten_by_what_they_say_unless_a_method_knows_better():
    assert PURE.carried == NOISY.carried == 1.0


def test_a_promise_for_a_word_is_none_for_a_person():
    class Words(Reversed):
        unit = Unit.WORD

    assert Words(SubsetResponse(0.5, 100, 10)).guarantee().unit is Unit.WORD
    assert Words(SubsetResponse(0.5, 100, 10)).guarantee_for_person(2).epsilon == math.inf
