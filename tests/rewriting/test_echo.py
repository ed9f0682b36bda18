"""Echo: a text comes back as a public sentence, each of the most alike e^ε times as likely as any other."""

import math
from collections import Counter
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Trust, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.sentence_vectors import SentenceEncoder
from dpnlp.rewriting import echo
from dpnlp.rewriting.echo import Bank, Echo

from ..mechanisms.audit import FALSE_ALARM, chi_square, epsilon_lower_bound
from ..tasks import readers

WIDTH = 4


class Meaning:
    """A text's vector by its letters: texts of the same letters mean the same."""

    width = WIDTH

    def __call__(self, texts):
        rows = {text: np.random.default_rng([*map(ord, text or "\0")]).normal(size=WIDTH) for text in {*texts}}
        found = np.array([rows[text] for text in texts]).reshape(-1, WIDTH)
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


SENTENCES = [f"sentence {number}" for number in range(30)]
BANK = Bank.of(SENTENCES, Meaning())


def most_alike(text, m):
    """The m sentences with the largest inner products, by a loop."""
    own = Meaning()([text])[0]
    return sorted(range(len(BANK)), key=lambda one: -float(own @ BANK.vectors[one]))[:m]


def test_a_bank_knows_how_alike_its_sentences_are():
    """The mean over its sentences of the similarities to all others, from the largest to the smallest."""
    alike = np.zeros(len(BANK) - 1)
    for one in range(len(BANK)):
        others = [float(BANK.vectors[one] @ BANK.vectors[two]) for two in range(len(BANK)) if two != one]
        alike += np.array(sorted(others, reverse=True)) / len(BANK)
    np.testing.assert_allclose(BANK.alike, alike, atol=1e-6)


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 4.0, 30.0])
def test_as_many_are_preferred_as_make_the_outcome_most_alike(epsilon, labels):
    """Of each pair that comes out: a sentence of the preferred ones, or by the rest of its probability any one."""

    def expected(m):
        pairs = np.ones(len(BANK) * labels)
        pairs[:m] = math.exp(epsilon)
        pairs /= pairs.sum()
        blind = pairs[-1] * len(pairs)
        return (1 - blind) * BANK.alike[:m].mean() + blind * BANK.alike.mean()

    assert BANK.preferred(epsilon, labels) == max(range(1, len(BANK) - 1), key=expected)


@pytest.mark.parametrize("m", [1, 7, 1500, 2998])
def test_the_nearest_are_the_most_alike_in_a_bank_of_any_size(m):
    vectors, text = np.split(Meaning()([f"text {number}" for number in range(3001)]), [3000])
    bank = Bank(tuple(map(str, range(3000))), vectors, np.zeros(2999, np.float32))
    similar = (np.rint(text * 2.0**11) @ np.rint(vectors * 2.0**11).T)[0]
    found = bank.nearest(text, m)[0]
    assert len({*found}) == m
    assert sorted(similar[found]) == sorted(similar)[-m:]


def test_no_more_similarities_are_computed_at_once_than_there_is_room_for(monkeypatch):
    """And as few as those of one text, if that has more; what comes out is the same."""
    texts, wide = [f"text {number}" for number in range(10)], []
    whole = Echo(BANK, Meaning(), math.inf).rewrite(texts)
    nearest = Bank.nearest
    monkeypatch.setattr(Bank, "nearest", lambda self, rows, m: wide.append(len(rows)) or nearest(self, rows, m))
    for room, expected in ((3 * len(BANK), [3, 3, 3, 1]), (5, [1] * 10)):
        monkeypatch.setattr(echo, "_AT_ONCE", room)
        wide.clear()
        assert Echo(BANK, Meaning(), math.inf).rewrite(texts) == whole
        assert wide == expected
        np.testing.assert_allclose(Bank.of(SENTENCES, Meaning()).alike, BANK.alike, atol=1e-6)


def test_banks_and_rewriters_are_themselves_and_cannot_be_changed():
    """Two with the same vectors are two; neither has to be compared number by number."""
    for one in (BANK, Echo(BANK, Meaning(), 2.0)):
        assert len({one, replace(one)}) == 2
    for one, name in ((BANK, "sentences"), (Echo(BANK, Meaning(), 2.0), "epsilon")):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, None)


def test_fewer_are_preferred_the_more_may_be_said():
    preferred = [BANK.preferred(epsilon) for epsilon in (1.0, 3.0, 10.0)]
    assert preferred == sorted(preferred, reverse=True)
    assert preferred[-1] == 1


def test_each_sentence_counts_once_and_blank_ones_do_not():
    bank = Bank.of(["a  b", "a b", "", " ", "c", "d"], Meaning())
    assert bank.sentences == ("a b", "c", "d")
    with pytest.raises(BadInput, match="it has 2 different sentences; it needs at least 3"):
        Bank.of(["a", "b", "a"], Meaning())


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_text_comes_back_with_the_probabilities_of_the_definition(epsilon):
    rewriter = Echo(BANK, Meaning(), epsilon, FixedSeed(0))
    m = rewriter.mechanism.preferred
    found = rewriter.rewrite(["what was said"] * 20_000)
    weights = np.ones(len(BANK))
    weights[most_alike("what was said", m)] = math.exp(epsilon)
    counts = [found.count(sentence) for sentence in BANK.sentences]
    assert chi_square(counts, weights / weights.sum()) > FALSE_ALARM


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_text_and_its_label_come_back_together_with_the_probabilities_of_the_definition(epsilon):
    rewriter = Echo(BANK, Meaning(), epsilon, FixedSeed(2)).with_labels(4)
    m = rewriter.mechanism.preferred
    found = list(zip(*rewriter.rewrite_labelled(["what was said"] * 40_000, [2] * 40_000), strict=True))
    weights = np.ones((len(BANK), 4))
    weights[most_alike("what was said", m), 2] = math.exp(epsilon)
    counts = Counter(found)
    seen = [counts[sentence, label] for sentence in BANK.sentences for label in range(4)]
    assert chi_square(seen, weights.ravel() / weights.sum()) > FALSE_ALARM


@pytest.mark.parametrize("other", [("text 1", 2), ("text 1", 0), ("text 0", 0)])
def test_an_audit_of_two_texts_with_labels_finds_no_more_than_is_claimed(other):
    """Whether text, label or both are exchanged: ε is for both together. The event is a preferred pair of the first."""
    rewriter, trials = Echo(BANK, Meaning(), 1.5, FixedSeed(3)).with_labels(3), 60_000
    m = rewriter.mechanism.preferred
    pairs = [{(BANK.sentences[one], label) for one in most_alike(text, m)} for text, label in (("text 0", 2), other)]
    event = pairs[0] - pairs[1]
    hits = []
    for text, label in (("text 0", 2), other):
        released = zip(*rewriter.rewrite_labelled([text] * trials, [label] * trials), strict=True)
        hits.append(sum(pair in event for pair in released))
    assert 1.2 < epsilon_lower_bound(*hits, trials) <= 1.5


def test_what_is_promised_for_a_text_with_its_label():
    rewriter = Echo(BANK, Meaning(), 2.0).with_labels(5)
    promised = rewriter.guarantee()
    assert (promised.epsilon, promised.delta, promised.unit) == (2.0, 0.0, Unit.TEXT)
    assert f"candidates={5 * len(BANK)}" in promised.signature()
    K, m, theta = 5 * len(BANK), rewriter.mechanism.preferred, rewriter.mechanism.theta
    assert rewriter.carried / m + (1 - rewriter.carried) / K == pytest.approx(theta / m)


def test_without_privacy_the_label_is_kept():
    rewriter = Echo(BANK, Meaning(), math.inf).with_labels(3)
    texts = ["one text", "another", "sentence 3"]
    alike = [BANK.sentences[most_alike(text, 1)[0]] for text in texts]
    assert rewriter.rewrite_labelled(texts, [2, 0, 1]) == (alike, [2, 0, 1])


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_there_is_not(label):
    """It would be taken for another sentence's."""
    with pytest.raises(BadInput, match="each must be a whole number from 0 to 2"):
        Echo(BANK, Meaning(), 1.0).with_labels(3).rewrite_labelled(["one text"], [label])
    with pytest.raises(BadInput, match="labels = 0"):
        Echo(BANK, Meaning(), 1.0).with_labels(0)


def test_an_audit_of_two_texts_finds_no_more_than_is_claimed():
    """The event is that one of the first text's preferred sentences comes up that the second does not prefer."""
    rewriter, trials = Echo(BANK, Meaning(), 1.5, FixedSeed(1)), 40_000
    m = rewriter.mechanism.preferred
    texts = max(
        ((f"text {a}", f"text {b}") for a in range(6) for b in range(a)),
        key=lambda pair: len({*most_alike(pair[0], m)} - {*most_alike(pair[1], m)}),
    )
    event = {BANK.sentences[one] for one in {*most_alike(texts[0], m)} - {*most_alike(texts[1], m)}}
    hits = [sum(found in event for found in rewriter.rewrite([text] * trials)) for text in texts]
    assert 1.3 < epsilon_lower_bound(*hits, trials) <= 1.5


def test_without_privacy_the_most_alike_sentence_comes_back():
    rewriter = Echo(BANK, Meaning(), math.inf)
    texts = ["one text", "another", "", "sentence 3"]
    assert rewriter.rewrite(texts) == [BANK.sentences[most_alike(text, 1)[0]] for text in texts]
    assert rewriter.rewrite(["sentence 3"]) == ["sentence 3"]
    assert rewriter.guarantee().epsilon == math.inf
    assert rewriter.rewrite([]) == []


def test_what_is_promised():
    promised = Echo(BANK, Meaning(), 2.0).guarantee()
    assert (promised.epsilon, promised.delta) == (2.0, 0.0)
    assert (promised.unit, promised.adjacency, promised.trust) == (Unit.TEXT, Adjacency.REPLACE, Trust.LOCAL)
    assert promised.mechanism.name == "subset-response"


def test_how_many_texts_are_carried():
    """The share λ for which the outcome is λ of a draw among the preferred and 1 − λ of one among all."""
    rewriter = Echo(BANK, Meaning(), 2.0)
    K, m, theta = len(BANK), rewriter.mechanism.preferred, rewriter.mechanism.theta
    assert rewriter.carried / m + (1 - rewriter.carried) / K == pytest.approx(theta / m)
    assert (1 - rewriter.carried) / K == pytest.approx((1 - theta) / (K - m))
    assert Echo(BANK, Meaning(), math.inf).carried == 1.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_refusals(epsilon):
    with pytest.raises(BadInput, match="epsilon"):
        Echo(BANK, Meaning(), epsilon)


def test_vectors_are_means_of_states_and_do_not_depend_on_batchmates(tmp_path):
    torch = readers.torch
    theirs = readers.encoder(tmp_path / "encoder").eval()
    encoder = SentenceEncoder.load(tmp_path / "encoder")
    texts = ["ba de gi", "ba", "", "xx yy", "ku lo ma ne pi ro tu ba ba ba de di do du ga ge gi go gu ka"]
    found = encoder(texts)
    for text, vector in zip(texts, found, strict=True):
        given = readers.tokenizer()(text, return_tensors="pt")
        with torch.no_grad():
            mean = theirs(**given).last_hidden_state[0].mean(axis=0)
        np.testing.assert_allclose(vector, mean / mean.norm(), atol=1e-5)
        np.testing.assert_allclose(encoder([text])[0], vector, atol=1e-6)
    assert encoder([]).shape == (0, 16)


def test_public_texts_of_a_language_that_the_vocabulary_lacks_are_refused(tmp_path):
    readers.encoder(tmp_path / "encoder")
    encoder = SentenceEncoder.load(tmp_path / "encoder")
    for fine in ([], ["ba de"], ["ba", "xx yy"], ["ba"] * 1000 + ["xx"] * 2000):
        encoder.refuse_unknown(fine)
    with pytest.raises(BadInput, match=r"encoder: of 2 of the first 3 texts it knows no token; take one for their"):
        encoder.refuse_unknown(["ba", "", "xx yy"])


def test_a_rewriter_comes_back_from_its_folder(tmp_path):
    readers.encoder(tmp_path / "start")
    encoder = SentenceEncoder.load(tmp_path / "start")
    bank = Bank.of(readers.WORDS, encoder)
    place = tmp_path / "rewriters" / "echo"  # both are made on the way
    echo.save(bank, encoder, place)
    texts = ["ba de", "gi", "ku lo"]
    loaded = echo.load(place, 2.0, source=FixedSeed(3))
    assert loaded.rewrite(texts) == Echo(bank, encoder, 2.0, FixedSeed(3)).rewrite(texts)
    (place / "bank.json").unlink()
    with pytest.raises(BadInput, match=r"bank\.json: it cannot be read \(No such file"):
        echo.load(place, 2.0)
