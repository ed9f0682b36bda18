"""Rewriting word by word: what comes out, how likely it is, and what is promised for a word and not for a text."""

import gzip
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, NoiseSource, Trust, Unit
from dpnlp.mechanisms.metric import Metric
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.word_vectors import Vectors, read_vectors
from dpnlp.rewriting import word_metric
from dpnlp.rewriting.word_metric import WordMetric

from ..mechanisms.audit import FALSE_ALARM, chi_square, epsilon_lower_bound

WORDS = ("ant", "bee", "cat", "dog", "eel")
LINE = np.array([[-1.0], [0.0], [0.5], [2.0], [2.05]], np.float32)
"""Words on a line: there the noise is that of Laplace, and the nearest word changes half-way between two words."""
ETA = 1.3


def on_a_line(eta=ETA, seed=0, words=WORDS, line=LINE):
    return WordMetric(Vectors(words, line), eta, FixedSeed(seed))


def chances(line, eta):
    """P(word | word), exactly: [words, words]."""
    places = np.sort(line[:, 0].astype(float))
    assert np.array_equal(places, line[:, 0])
    borders = np.concatenate(([-np.inf], (places[1:] + places[:-1]) / 2, [np.inf]))
    return np.diff(laplace(places[:, None], 1 / eta).cdf(borders), axis=1)


def counts(rewriter, word, draws):
    (text,) = rewriter.rewrite([" ".join([word] * draws)])
    found = text.split()
    assert len(found) == draws
    return np.array([found.count(known) for known in WORDS])


@pytest.mark.parametrize("row", range(5))
def test_each_word_comes_out_as_often_as_its_cell_has_noise(row):
    assert chi_square(counts(on_a_line(seed=row), WORDS[row], 20_000), chances(LINE, ETA)[row]) > FALSE_ALARM


def test_no_text_is_refused():
    """A refusal would tell of it."""
    texts = ["", "ant \ud800 bee", "\x00", "[PAD] [UNK] ant", "\udfff"]
    assert [len(text.split()) for text in on_a_line().rewrite(texts)] == [0, 3, 0, 3, 1]


def test_words_that_are_all_the_same_are_refused_where_they_lie(tmp_path):
    (tmp_path / "vectors.txt").write_text("ant 1 2\nbee 1 2\n")
    with pytest.raises(BadInput, match="all of them are the same; give two different words"):
        word_metric.load(tmp_path, 1.0)


def test_an_unknown_word_comes_out_as_the_mean_of_all_words():
    """So it is as hard to tell from a known word as these are from each other."""
    found = counts(on_a_line(seed=7), "zebra", 20_000)
    assert chi_square(found, chances(LINE, ETA).mean(axis=0)) > FALSE_ALARM
    assert chi_square(found, np.full(5, 0.2)) < FALSE_ALARM  # as it would if it were drawn and no noise came after


@given(
    st.lists(st.integers(-1000, 1000), min_size=2, max_size=8, unique=True).map(sorted),
    st.floats(0.05, 1.5),
)
def test_the_loss_of_any_two_words_is_at_most_eta_times_their_distance(places, eta):
    """By the closed form, unknown words included, and the promise of the rewriter is for the farthest two."""
    line = np.array(places, np.float32)[:, None] / 250
    words = tuple(f"w{i}" for i in range(len(line)))
    table = chances(line, eta)
    logs = np.log(np.vstack((table, table.mean(axis=0))))
    losses = np.abs(logs[:, None] - logs[None]).max(axis=2)
    assert np.all(losses[:-1, :-1] <= eta * np.abs(line - line.T.astype(float)) + 1e-6)
    promised = on_a_line(eta, words=words, line=line).guarantee().epsilon
    assert losses.max() <= promised + 1e-6
    assert math.isclose(promised, eta * float(np.ptp(line)), rel_tol=1e-6)


def audited(rewriter, trials=20_000):
    """Of three words in a row the last one, for the first and for the middle one, which is hard beside it."""
    one, other = (rewriter.rewrite([" ".join([word] * trials)])[0].split().count("eel") for word in ("dog", "bee"))
    return epsilon_lower_bound(one, other, trials)


def test_the_promise_is_kept_and_nearly_used_up():
    """ "eel" is 2 η likelier for "dog" than for "bee", which are 2 apart."""
    exact = math.log(chances(LINE, ETA)[3, 4] / chances(LINE, ETA)[1, 4])
    assert math.isclose(exact, 2 * ETA, rel_tol=1e-6)
    assert 0.85 * 2 * ETA < audited(on_a_line(seed=8)) < 2 * ETA


def test_too_little_noise_is_found_out(monkeypatch):
    release = Metric.release
    monkeypatch.setattr(Metric, "release", lambda self, rows: rows + (release(self, rows) - rows) / math.sqrt(2))
    assert audited(on_a_line(seed=9)) > 2 * ETA


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 6), st.integers(1, 60), st.sampled_from([3, 7, 4096]))
def test_the_nearest_word_is_that_of_a_naive_search(seed, size, d, length, block):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(size, d)).astype(np.float32) + 10
    words = tuple(f"w{i}" for i in range(size))
    seen = []

    class Recording(Metric):
        def release(self, vectors):
            seen.append(super().release(vectors))
            return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_metric, "Metric", Recording)
        patch.setattr(word_metric, "_WORDS", block)
        text = " ".join(rng.choice(words, length))
        (found,) = WordMetric(Vectors(words, table), 5.0, FixedSeed(seed)).rewrite([text])
    apart = np.linalg.norm(np.concatenate(seen)[:, None] - table.astype(float)[None], axis=2)
    chosen = apart[np.arange(length), [words.index(word) for word in found.split()]]
    assert np.all(chosen <= apart.min(axis=1) + 1e-4)


def test_a_text_keeps_its_number_of_words_and_its_place():
    texts = ["Ant bee, CAT", "", "zebra", " ", "dog " * 300]
    found = on_a_line().rewrite(texts)
    assert [len(text.split()) for text in found] == [4, 0, 1, 0, 300]
    assert set(" ".join(found).split()) <= set(WORDS)
    assert on_a_line().rewrite([]) == []


def test_without_noise_known_words_stay_as_they_are():
    plain = on_a_line(math.inf)
    assert plain.rewrite(["Ant bee eel", "dog dog"]) == ["ant bee eel", "dog dog"]
    assert plain.rewrite(["zebra [PAD] [SEP]"])[0].split()[0] in WORDS
    assert len(plain.rewrite(["zebra [PAD] [SEP]"])[0].split()) == 3
    assert not plain.guarantee().is_private
    assert plain.event == events.NonPrivate()


def test_batchmates_do_not_matter():
    """With the same noise a text becomes the same, whatever stands in the others."""
    one, other = on_a_line(seed=3).rewrite(["ant bee", "cat dog"]), on_a_line(seed=3).rewrite(["ant bee", "eel zebra"])
    assert one[0] == other[0]
    assert on_a_line(seed=3).rewrite(["ant bee", "cat dog"]) == one


def test_the_promise_is_for_one_word_and_says_so():
    rewriter = WordMetric(Vectors(WORDS, LINE), ETA)
    promised = rewriter.guarantee()
    assert math.isclose(promised.epsilon, ETA * 3.05, rel_tol=1e-6)
    assert promised.epsilon >= ETA * float(LINE[-1, 0] - LINE[0, 0])
    assert (rewriter.unit, promised.unit, promised.delta) == (Unit.WORD, Unit.WORD, 0.0)
    assert (promised.adjacency, promised.trust) == (Adjacency.REPLACE, Trust.LOCAL)
    assert promised.noise_source is NoiseSource.OS_ENTROPY
    assert promised.mechanism.name == "metric"
    assert promised.not_covered == (Exposure.LENGTH,)
    assert Guarantee.parse(promised.signature()) == promised
    for said in (
        "The promise is for one word.",
        "All k words of a text are promised only k·ε: no ε of a word compares with that of a text.",
        "How many words each text has is seen; for a text as a whole nothing is promised.",
        f"Mechanism: metric(eta={rewriter.mechanism.eta},diameter={rewriter.mechanism.diameter}), used once.",
    ):
        assert said in promised.statement()
    assert rewriter.event == events.ApproximateDP(promised.epsilon)


def test_a_person_is_promised_nothing():
    assert on_a_line().guarantee_for_person(3).epsilon == math.inf
    assert on_a_line().guarantee_for_person(1, 1e-5).epsilon == math.inf


def test_a_file_of_vectors_is_enough(tmp_path):
    (tmp_path / "vectors.txt").write_text("the 0 0\nof 0 1\n", encoding="utf-8")
    rewriter = WordMetric(read_vectors(tmp_path / "vectors.txt"), 50.0, FixedSeed(0))
    assert rewriter.rewrite(["The of the"]) == ["the of the"]
    with pytest.raises(BadInput, match=r"none\.txt: it cannot be read .*; give a file of word vectors\.$"):
        read_vectors(tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["vectors.txt", "glove.6B.vec", "a.csv", "no_ending", "glove.txt.gz"])
def test_a_folder_gives_back_the_rewriter_whatever_its_file_of_vectors_was_called(tmp_path, name):
    """At an ε for the two words that are farthest apart, 5."""
    text = b"ant 0 0\nbee 0 1\ncat 3 4\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (tmp_path / "folder").mkdir()
    word_metric.save(tmp_path / name, tmp_path / "folder")
    (tmp_path / name).unlink()
    made = word_metric.load(tmp_path / "folder", 10.0, source=FixedSeed(4))
    assert made.vectors.words == ("ant", "bee", "cat")
    assert made.eta == pytest.approx(2.0)
    assert made.rewrite(["ant bee cat"] * 9) == WordMetric(made.vectors, made.eta, FixedSeed(4)).rewrite(
        ["ant bee cat"] * 9
    )
    with pytest.raises(BadInput, match="epsilon = 0"):
        word_metric.load(tmp_path / "folder", 0.0)


def test_what_the_noise_was_made_for_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        on_a_line().eta = 9.0


@pytest.mark.parametrize(
    ("vectors", "eta", "sentence"),
    [
        (Vectors(WORDS, LINE), 0, "eta = 0: it must be a number above 0; inf stands for no privacy."),
        (Vectors(WORDS, LINE), math.nan, "eta = nan: it must be a number above 0; inf stands for no privacy."),
        (Vectors(WORDS[:1], LINE[:1]), 1, "vectors: all of them are the same; give two different words at least."),
        (Vectors(WORDS[:2], LINE[[1, 1]]), 1, "vectors: all of them are the same; give two different words at least."),
        (Vectors((), LINE[:0]), 1, "vectors: all of them are the same; give two different words at least."),
        (Vectors(WORDS, LINE[:4]), 1, "vectors of shape (4, 1): there must be one row for each of the 5 words."),
        (Vectors(WORDS[:4], LINE), 1, "vectors of shape (5, 1): there must be one row for each of the 4 words."),
        (Vectors(WORDS, LINE[:, 0]), 1, "vectors of shape (5,): there must be one row for each of the 5 words."),
        (Vectors(WORDS, np.full_like(LINE, math.inf)), 1, "vectors: there must be one row of finite numbers for each."),
        (Vectors(("a", "a"), LINE[:2]), 1, "words: 'a' is there twice; give each word once."),
    ],
)
def test_what_is_no_vocabulary_is_refused(vectors, eta, sentence):
    with pytest.raises(BadInput) as refused:
        WordMetric(vectors, eta)
    assert str(refused.value) == sentence
