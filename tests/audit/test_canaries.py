"""Canaries: drawn fairly, scored without their coins, and never said to show more than chance would."""

import json
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from dpnlp.audit import canaries
from dpnlp.audit.canaries import WORDS, Canaries, Canary, Found, scores
from dpnlp.audit.membership import GUESSED
from dpnlp.checks import BadInput
from dpnlp.data.views import Joined, owners_of_both
from dpnlp.guarantee import Adjacency, Guarantee, Term, Trust, Unit
from dpnlp.mechanisms.randomness import OS_ENTROPY, FixedSeed
from dpnlp.tasks.answering import Answering
from dpnlp.tasks.classification import Classification
from dpnlp.tasks.modelling import Modelling
from dpnlp.tasks.tagging import Tagging
from dpnlp.tasks.translation import Translation

from ..tasks import modellers, translators

CLAIM = Guarantee(2.0, 1e-5, Unit.EXAMPLE, Adjacency.ADD_REMOVE, Trust.CENTRAL, Term("gaussian"))


def drawn(count, seed=0, tokenizer=None):
    return Canaries.drawn(count, tokenizer or translators.tokenizer(), FixedSeed(seed))


# Drawing


def test_words_are_known_to_the_tokenizer_and_hold_no_special_token():
    tokenizer = modellers.tokenizer()
    for canary in drawn(50, tokenizer=tokenizer):
        assert len(canary.words) == len(canary.choices) == WORDS
        assert {*canary.words} <= {*modellers.WORDS} - {"."}
        assert all(0 <= choice < canaries.CHOICES for choice in canary.choices)


def test_coins_are_fair_and_each_is_its_own():
    coins = drawn(4000).put_in
    assert binomtest(int(coins.sum()), len(coins)).pvalue > 1e-3
    assert binomtest(int((coins[1:] == coins[:-1]).sum()), len(coins) - 1).pvalue > 1e-3


def test_words_are_drawn_alike_for_those_that_are_put_in_and_those_that_are_not():
    found = drawn(2000, tokenizer=modellers.tokenizer())
    first = np.array([modellers.WORDS.index(canary.words[0]) for canary in found])
    inside, outside = (np.bincount(first[found.put_in == side], minlength=10)[:10] for side in (True, False))
    share = inside / (inside + outside)
    assert np.all(np.abs(share - found.put_in.mean()) < 0.2)


def test_the_same_seed_draws_the_same_and_no_seed_never_does():
    assert drawn(20) == drawn(20) != drawn(20, seed=1)
    tokenizer = translators.tokenizer()
    assert Canaries.drawn(20, tokenizer, OS_ENTROPY) != Canaries.drawn(20, tokenizer, OS_ENTROPY)


def test_they_are_read_back_exactly():
    found = drawn(12)
    assert Canaries.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_tokenizer_without_words_is_refused():
    class Marks(list):
        all_special_ids = ()

        def batch_decode(self, ids):
            return [self[token] for (token,) in ids]

    with pytest.raises(BadInput, match="hardly any token of the tokenizer is a word"):
        drawn(3, tokenizer=Marks(".,;"))


# Among others


def test_every_task_makes_a_record_of_its_own_shape():
    canary = drawn(1)[0]
    words, half = canary.words, WORDS // 2
    made = Classification(None, None, ("a", "b", "c")).made_up(words, canary.choices)
    assert (made.text, made.pair, made.label) == (" ".join(words), None, "abc"[canary.choices[0] % 3])
    pair = Classification(None, None, ("a", "b"), pairs=True).made_up(words, canary.choices)
    assert (pair.text, pair.pair) == (" ".join(words[:half]), " ".join(words[half:]))
    tagged = Tagging(None, None, ("x", "y")).made_up(words, canary.choices)
    assert tagged.words == words
    assert tagged.tags == tuple("xy"[choice % 2] for choice in canary.choices)
    assert Translation.made_up(None, words, canary.choices)[:2] == (" ".join(words[:half]), " ".join(words[half:]))
    assert Modelling.made_up(None, words, canary.choices).text == " ".join(words)
    for place in range(half):
        asked = Answering(None, None).made_up(words, (place,))
        (answer,) = asked.answers
        assert answer.text == words[half + place]
        assert asked.context[answer.start :].startswith(answer.text)
        assert asked.context[: answer.start].split() == list(words[half : half + place])


class Rows:
    """Examples that say who they are."""

    def __init__(self, first, count):
        self.names, self.lengths = np.arange(first, first + count), np.full(count, 2)

    def __len__(self):
        return len(self.names)

    def batch(self, rows, length):
        return {"name": self.names[rows], "ids": np.tile(self.names[rows][:, None], (1, length))}


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_joined_examples_are_those_of_the_first_and_then_those_of_the_second(first, second, rows):
    both = Joined(Rows(0, first), Rows(first, second))
    rows = np.array(rows) % len(both)
    found = both.batch(rows, 3)
    np.testing.assert_array_equal(found["name"], rows)
    np.testing.assert_array_equal(found["ids"], np.tile(rows[:, None], (1, 3)))


def test_nobody_owns_a_canary_and_anything_else():
    assert owners_of_both(None, 3, None, 2) is None
    assert owners_of_both(np.array([4, 0, 4]), 3, None, 2).tolist() == [4, 0, 4, 5, 6]
    assert owners_of_both(None, 3, np.array([0, 0, 1]), 3).tolist() == [0, 1, 2, 3, 3, 4]
    assert owners_of_both(np.array([0, 0, 1]), 3, np.array([0, 1, 1]), 3).tolist() == [0, 0, 1, 2, 3, 3]


# Scores


def test_scores_are_those_of_a_loop_over_canaries():
    """−log p fell by so much, and the weights moved so far along a canary's own gradient."""
    before, after = translators.translator(0), translators.translator(1)
    task, made = Translation(before, 16), drawn(5)
    examples = task.examples([task.made_up(canary.words, canary.choices) for canary in made])
    found = scores(before.model, after.model, nnx.Param, task.loss, examples, 16, batch=2)

    def loss(model, row):
        return task.loss(model, examples.batch(np.array([row]), 16))[0]

    theta, moved = (jax.tree.leaves(nnx.state(model.model, nnx.Param)) for model in (before, after))
    each = [nnx.grad(loss)(before.model, row) for row in range(5)]
    movement = 0
    for place, (first, last) in enumerate(zip(theta, moved, strict=True)):
        gradients = np.stack([np.ravel(jax.tree.leaves(one)[place]) for one in each]).astype(np.float64)
        common, went = gradients.sum(axis=0), np.ravel(first).astype(np.float64) - np.ravel(last)
        if common @ common:
            went -= common * (went @ common) / (common @ common)
        movement = movement + gradients @ went
    fell = [float(loss(before.model, row) - loss(after.model, row)) for row in range(5)]
    np.testing.assert_allclose(found["loss"], fell, atol=1e-4)
    np.testing.assert_allclose(found["movement"], movement, rtol=1e-3, atol=1e-3)


def test_a_canary_of_several_examples_has_the_sum_of_theirs_and_what_is_not_finite_counts_as_nothing():
    class Model(nnx.Module):
        def __init__(self, value):
            self.weight = nnx.Param(jnp.array(value))

    class Windows:
        records, lengths = np.array([0, 0, 1]), np.ones(3)

        def __len__(self):
            return 3

        def by_length(self, size, longest):
            yield np.arange(3), {"slope": np.array([1.0, 2.0, np.nan], np.float32)}

    def loss(model, batch):
        return batch["slope"] * model.weight[...]

    found = scores(Model(3.0), Model(1.0), nnx.Param, loss, Windows(), 1)
    assert found["loss"].tolist() == [6.0, 0.0]
    assert found["movement"].tolist() == [0.0, 0.0]


# What is found


def judged(coins, *kinds):
    made = Canaries(Canary((f"w{place}",), (0,), bool(coin)) for place, coin in enumerate(coins))
    return Found(made, {f"score {number}": np.asarray(kind, np.float64) for number, kind in enumerate(kinds)})


def test_scores_that_know_everything_show_what_so_many_coins_can_show():
    coins = drawn(400).put_in
    tell = coins + np.random.default_rng(0).random(400) / 2
    found = judged(coins, tell)
    assert found.above(1e-5) == pytest.approx(found.most(1e-5), rel=0.1)
    assert all(one.rank == 1 for one in found.exposures)
    entry = found.to_json(CLAIM)
    assert entry["refuted"]
    assert "THE CLAIM IS REFUTED" in entry["statement"]
    assert entry["exposure"]["mean"] == pytest.approx(math.log2(1 + 400 - coins.sum()))


def test_scores_that_know_nothing_show_nothing_and_are_exposed_as_chance_has_it():
    rng = np.random.default_rng(0)
    found = judged(rng.random(4000) < 0.5, rng.random(4000), rng.random(4000))
    assert found.above(1e-5) < 0.3
    entry = found.to_json(CLAIM)
    assert not entry["refuted"]
    assert entry["exposure"]["mean"] == pytest.approx(entry["exposure"]["by_chance"], abs=0.1)
    ranks = [one.rank / one.candidates for one in found.exposures]
    assert kstest(ranks, "uniform").pvalue > 1e-3
    assert "proves nothing" in entry["statement"]


def test_randomized_response_is_refuted_no_more_often_than_is_stated():
    """It promises exactly ε, and is the hardest to keep apart: guesses are right with probability e^ε/(1 + e^ε)."""
    rng, epsilon, wrong = np.random.default_rng(1), 1.0, 0
    right = 1 / (1 + math.exp(-epsilon))
    for _ in range(200):
        coins = rng.random(200) < 0.5
        kinds = [np.where(rng.random(200) < right, coins, ~coins) + rng.random(200) / 2 for _ in range(2)]
        wrong += judged(coins, *kinds).above(1e-6) > epsilon
    assert wrong <= 10  # 5 % of 200 are allowed, and Bonferroni's bound is cautious


def test_scores_share_what_may_go_wrong():
    coins = drawn(200).put_in
    tell = coins + np.random.default_rng(0).random(200) / 2
    alone, beside = judged(coins, tell), judged(coins, tell, np.zeros(200))
    assert beside.above(1e-5) < alone.above(1e-5)
    assert beside.above(1e-5, 0.95) == pytest.approx(alone.above(1e-5, 0.975))


def test_what_is_said_of_how_many_it_takes_is_about_right():
    """Half of n are guessed; by (ε, 0)-DP all guesses are right with probability (1 + e^−ε)^−n/2 at most."""
    coins = np.arange(20) % 2 == 0
    few = judged(coins, coins)
    needed = few.needed(CLAIM.epsilon, 1e-12)
    exact = 2 * math.log(20 * len(GUESSED)) / math.log1p(math.exp(-CLAIM.epsilon))
    assert exact <= needed < 1.25 * exact
    assert f"it takes about {few.needed(CLAIM.epsilon, CLAIM.delta)}." in few.statement(CLAIM)
    assert few.needed(8.0, 1e-3) is None
    assert "no number up to 1,000,000 could at this δ" in few.statement(replace(CLAIM, epsilon=8.0, delta=1e-3))


@pytest.mark.parametrize("coin", [True, False])
def test_coins_that_all_fall_alike_leave_nothing_to_compare(coin):
    found = judged([coin] * 12, np.arange(12))
    entry = found.to_json(CLAIM)
    assert (entry["above"], entry["most"], entry["refuted"], entry["exposure"]) == (0.0, 0.0, False, None)
    assert "there is nothing to compare" in entry["statement"]


def test_a_run_without_privacy_claims_nothing_that_could_be_refuted():
    coins = drawn(400).put_in
    entry = judged(coins, coins).to_json(replace(CLAIM, epsilon=math.inf))
    assert entry["above"] > 2
    assert (entry["claimed"], entry["refuted"]) == ("inf", False)
    assert "Nothing is claimed that this could refute." in entry["statement"]


def test_a_claim_about_exchanged_records_is_said_to_be_tested_by_less():
    coins = drawn(100).put_in
    found = judged(coins, np.random.default_rng(0).random(100))
    assert "exchanged records" in found.statement(replace(CLAIM, adjacency=Adjacency.REPLACE))
    assert "exchanged records" not in found.statement(CLAIM)
