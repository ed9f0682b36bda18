"""Sampling with clipped logits: which tokens are drawn how often, what a text costs, and what may not matter."""

import json
import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from transformers import BartConfig, GenerationConfig

from dpnlp import events
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Guarantee, NoiseSource, Trust, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.pretrained import FAMILIES, Pretrained, from_scratch, load, save
from dpnlp.models.pretrained.weights import Checkpoint
from dpnlp.models.t5 import T5
from dpnlp.rewriting import clipped_sampling
from dpnlp.rewriting.clipped_sampling import ClippedDraws, ClippedSampling

from ..mechanisms.audit import FALSE_ALARM, chi_square, epsilon_lower_bound
from ..tasks.translators import sentences, tokenizer
from .told_models import END, PAD, UNKNOWN, told

BOUNDS = (-1.0, 2.0)
V, A, B = 16, 3, 4  # tokens, of which these are the words a and b
DRAWS = 8192


def logits(seed=0, scale=3.0):
    """Some of them beyond the bounds. Padding and the unknown word are forbidden where they would not be seen."""
    return np.random.default_rng(seed).normal(0, scale, (V, V))


def rewriter(table, epsilon=4.0, tokens=1, seed=0, generation=None, **changes):
    settings = {"longest": 8, "batch": DRAWS, "source": FixedSeed(seed)} | changes
    pretrained = told(table, **{"suppress_tokens": [PAD, UNKNOWN]} | (generation or {}))
    return ClippedSampling(pretrained, BOUNDS, tokens, epsilon, **settings)


def shares(row, temperature):
    """The naive exponential mechanism over the tokens that are not forbidden."""
    clipped = [min(max(x, BOUNDS[0]), BOUNDS[1]) if x == x else BOUNDS[0] for x in row]
    weights = [0.0 if token in (PAD, UNKNOWN) else math.exp(x / temperature) for token, x in enumerate(clipped)]
    return np.array(weights) / sum(weights)


def counted(texts):
    """How often each token was drawn first; an empty text is an end."""
    return np.bincount([END if not text else ord(text[0]) - ord("a") + 3 for text in texts], minlength=V)


# What is drawn


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 20.0])
def test_a_token_is_drawn_by_its_clipped_logit(epsilon):
    made = rewriter(logits(), epsilon)
    expected = shares(logits()[A], made.mechanism.temperature)
    assert chi_square(counted(made.rewrite(["a"] * DRAWS)), expected) > FALSE_ALARM
    plain = np.exp(logits()[A] / made.mechanism.temperature)
    plain[[PAD, UNKNOWN]] = 0
    assert chi_square(counted(made.rewrite(["a"] * DRAWS)), plain / plain.sum()) < FALSE_ALARM


def test_a_logit_that_is_no_number_counts_as_the_lowest():
    table = logits()
    table[A, [5, 6, 7]] = np.nan, np.inf, -np.inf
    made = rewriter(table)
    expected = shares(table[A], made.mechanism.temperature)
    assert expected[5] == expected[7] < expected[6]
    assert chi_square(counted(made.rewrite(["a"] * DRAWS)), expected) > FALSE_ALARM


def test_no_text_is_refused():
    """A refusal would tell of it."""
    assert len(rewriter(logits(), batch=4).rewrite(["", "a \ud800 b", "\x00", "\udfff" * 50])) == 4


def test_later_tokens_are_drawn_in_the_light_of_earlier_ones_and_the_end_is_one_of_them():
    table = np.random.default_rng(3).normal(0, 3, (V, V, V))
    made = rewriter(table, 8.0, tokens=2)
    first = shares(table[A, PAD], made.mechanism.temperature)
    expected, found = np.zeros((V, V)), np.zeros((V, V))
    for one in range(V):
        expected[one] = first[one] * shares(table[A, one], made.mechanism.temperature)
    expected[END] = first[END] * np.eye(V)[END]  # nothing follows
    for text in made.rewrite(["a"] * DRAWS):
        one, other = [ord(word) - ord("a") + 3 for word in text.split()] + [END] * (2 - len(text.split()))
        found[one, other] += 1
    assert chi_square(found.ravel(), expected.ravel()) > FALSE_ALARM


def test_the_model_s_own_ways_of_choosing_are_not_used():
    """They would make tokens impossible by the text. What is public stays: forced and forbidden tokens."""
    theirs = {"num_beams": 4, "top_k": 2, "top_p": 0.5, "temperature": 9.0, "do_sample": True, "min_length": 5}
    made, plain = rewriter(logits(), generation=theirs), rewriter(logits())
    assert made.options == plain.options
    assert (made.options.top_k, made.options.top_p, made.options.beams, made.options.sample) == (None, 1.0, 1, True)
    assert made.rewrite(["a"] * 50) == plain.rewrite(["a"] * 50)
    forced = rewriter(logits(), tokens=2, generation={"forced_bos_token_id": 5, "suppress_tokens": [PAD, UNKNOWN, 7]})
    found = forced.rewrite(["a"] * 500)
    assert {text[0] for text in found} == {"c"}
    assert "e" not in "".join(found)


# What it promises


def worst():
    """One token gains all it can and all others lose all they can, or the other way round, by the text."""
    table = np.zeros((V, V))
    table[A], table[B] = -50.0, 50.0
    table[A, 9], table[B, 9] = 50.0, -50.0
    return table


def audited(made):
    trials = 2 * DRAWS
    one, other = (counted(made.rewrite([text] * trials))[9] for text in "ab")
    return epsilon_lower_bound(one, other, trials)


def test_the_promise_is_kept_and_mostly_used_up():
    assert 0.6 * 2.0 < audited(rewriter(worst(), 2.0, seed=1)) < 2.0


def test_a_temperature_too_low_is_found_out(monkeypatch):
    temperature = ClippedDraws.temperature.fget
    monkeypatch.setattr(ClippedDraws, "temperature", property(lambda self: temperature(self) / math.sqrt(2)))
    assert audited(rewriter(worst(), 2.0, seed=2)) > 2.0


def log_shares(rows, bounds, temperature):
    clipped = np.clip(rows, *bounds) / temperature
    return clipped - np.logaddexp.reduce(clipped, axis=-1, keepdims=True)


BOUND = st.floats(-30, 30)


@given(
    st.tuples(BOUND, BOUND).filter(lambda pair: pair[1] - pair[0] > 0.01),
    st.floats(0.01, 70),
    st.integers(1, 100),
    st.integers(2, 300),
    st.integers(0, 10**6),
)
def test_no_two_texts_differ_by_more_than_epsilon_and_the_worst_by_nearly_as_much(bounds, each, tokens, size, seed):
    """Whatever the logits; near ε where tokens are many, in exact arithmetic and with some room for rounding."""
    mechanism = ClippedDraws(bounds, tokens, tokens * each)
    temperature = mechanism.temperature
    width = bounds[1] - bounds[0]
    rows = np.random.default_rng(seed).normal(np.mean(bounds), width, (2, size))
    random_loss = np.abs(np.subtract(*log_shares(rows, bounds, temperature))).max()
    opposite = np.where(np.arange(size) == 0, [[np.inf], [-np.inf]], [[-np.inf], [np.inf]])
    worst_loss = np.abs(np.subtract(*log_shares(opposite, bounds, temperature))).max()
    assert random_loss <= worst_loss <= each - 2.0**-12
    others, gain = 10**6, width / temperature  # the same for a million others, in closed form
    found = gain + math.log1p(others * math.exp(gain)) - math.log(math.exp(gain) + others)
    assert (0.95 * each if 0.01 < each < 10 else 0) < found <= each - 2.0**-12


@given(BOUND, st.floats(0.01, 60), st.floats(-2, 3).map(lambda power: 10**power), st.integers(1, 512))
def test_epsilon_and_temperature_belong_together(low, width, temperature, tokens):
    """As published, m·2(b₂ − b₁)/T, but for what rounding can add."""
    published = tokens * 2 * width / temperature
    if not 0.01 <= published / tokens <= 75:
        return
    made = ClippedDraws.from_temperature((low, low + width), tokens, temperature)
    assert math.isclose(made.temperature, temperature, rel_tol=1e-9)
    assert published < made.epsilon < published + tokens * (2.0**-12 + 1e-5 * (abs(low) + width) / temperature)
    assert made.temperature > 2 * made.sensitivity * tokens / made.epsilon


def test_tokens_add_up():
    one, many = ClippedDraws(BOUNDS, 1, 0.5), ClippedDraws(BOUNDS, 40, 20.0)
    assert one.temperature == many.temperature
    assert one.event() == events.Repeated(events.ApproximateDP(0.5), 1)
    assert many.event() == events.Repeated(events.ApproximateDP(0.5), 40)


def test_the_promise_is_for_a_whole_text():
    made = ClippedSampling(told(logits()), BOUNDS, 10, 5.0, longest=8)
    promised = made.guarantee()
    assert (promised.epsilon, promised.delta, promised.unit) == (5.0, 0.0, Unit.TEXT)
    assert (promised.adjacency, promised.trust) == (Adjacency.REPLACE, Trust.LOCAL)
    assert promised.noise_source is NoiseSource.OS_ENTROPY
    assert str(promised.mechanism) == (
        f"clipped-sampling(low=-1.0,high=2.0,temperature={made.mechanism.temperature},tokens=10)"
    )
    assert not promised.not_covered
    assert Guarantee.parse(promised.signature()) == promised
    assert made.event == made.mechanism.event()
    person = made.guarantee_for_person(20)
    assert (person.epsilon, person.unit) == (100.0, Unit.USER)
    # By token, 200 draws of 0.5; 20 texts of 5 would come to more.
    by_token = made.guarantee_for_person(20, 1e-5)
    assert (by_token.epsilon, by_token.delta) == (pytest.approx(55, abs=5), 1e-5)


# What may not matter, and what may


def test_batchmates_do_not_matter():
    table = np.random.default_rng(3).normal(0, 3, (V, V, V))

    def first(*others, batch):
        return rewriter(table, 12.0, tokens=6, batch=batch).rewrite(["a b c", *others])[:2]

    alone = first("b", "c a", batch=3)
    assert first("b", "d d d d d d d", batch=3) == alone
    assert first("b", "c a", batch=2) == alone
    assert first("b", "c a", "a", "e", "", batch=4) == alone
    assert len(set(rewriter(table, 12.0, tokens=6).rewrite(["a"] * 100))) > 90


def test_any_text_is_rewritten_without_a_word_about_it():
    """One that is empty, unknown or far too long: an error would tell."""
    made = rewriter(logits(), batch=4)
    assert len(made.rewrite(["", "ζ", "b " * 5000, "  "])) == 4
    assert made.rewrite([]) == []


def test_no_more_than_the_longest_is_read_and_the_prefix_is_read_first():
    greedy = {"epsilon": math.inf, "tokens": 3, "batch": 2}
    table = logits()
    by_a, by_b = (rewriter(table, **greedy).rewrite([text])[0] for text in "ab")
    assert by_a != by_b
    assert rewriter(table, **greedy, prefix="b ").rewrite(["a", "c"]) == [by_b, by_b]


def test_an_infinite_epsilon_gives_the_most_probable_tokens():
    made = rewriter(logits(), math.inf)
    allowed = logits()[A].copy()
    allowed[[PAD, UNKNOWN]] = -np.inf
    assert counted(made.rewrite(["a"] * 3))[np.argmax(allowed)] == 3
    assert not made.guarantee().is_private
    assert made.event == events.NonPrivate()


def test_noise_is_fresh_unless_a_seed_is_fixed():
    made = rewriter(logits(), tokens=8, batch=4)
    assert made.rewrite(["a"] * 4) != made.rewrite(["a"] * 4)
    assert rewriter(logits(), tokens=8, batch=4).rewrite(["a"] * 4) == rewriter(logits(), tokens=8, batch=4).rewrite(
        ["a"] * 4
    )
    fresh = rewriter(logits(), tokens=8, batch=4, source=clipped_sampling.OS_ENTROPY)
    assert fresh.rewrite(["a"] * 4) != fresh.rewrite(["a"] * 4)


# Real architectures, from folders


def bart():
    words, small = tokenizer(), {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
    small |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    marks = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, "decoder_start_token_id": 1}
    theirs = BartConfig(vocab_size=len(words), **small, **marks, max_position_embeddings=24, forced_eos_token_id=None)
    family = FAMILIES["bart"]
    config = replace(family.config(theirs, Checkpoint(())), dtype="float32")
    return Pretrained(family.build(config, rngs=nnx.Rngs(0)), theirs, GenerationConfig.from_model_config(theirs), words)


def t5():
    shape = {"width": 16, "layers": 1, "heads": 2, "hidden": 32}
    return from_scratch(tokenizer(), **shape, dropout=0.0, computes="float32", seed=0, architecture="t5")


@pytest.mark.parametrize("build", [t5, bart])
def test_a_model_of_a_folder_rewrites(tmp_path, build):
    save(build(), tmp_path / "model")
    made = ClippedSampling(
        load(tmp_path / "model"), (-5.0, 5.0), 6, 60.0, prefix="ba ", longest=16, batch=4, source=FixedSeed(0)
    )
    texts = [pair.source for pair in sentences(4)]
    found = made.rewrite(texts)
    assert len(set(found)) > 1
    assert replace(made, source=FixedSeed(0)).rewrite(texts[:1] + [""] * 3)[0] == found[0]
    assert replace(made, source=FixedSeed(1)).rewrite(texts) != found
    if build is bart:
        with pytest.raises(BadInput, match=r"^longest = 25: the model has positions for at most 24\.$"):
            replace(made, longest=25)
        with pytest.raises(BadInput, match=r"^tokens = 25: the model has positions for at most 24\.$"):
            replace(made, tokens=25)


def test_bounds_are_the_mean_of_the_logits_on_public_texts_and_four_deviations_above(monkeypatch):
    model, compiled, encode = t5(), [], T5.encode
    texts = [pair.source for pair in sentences(5)]
    with monkeypatch.context() as watched:
        watched.setattr(T5, "encode", lambda *given: compiled.append(1) or encode(*given))
        found = clipped_sampling.usual_bounds(model, texts, prefix="ba ", tokens=6, longest=16, batch=2)
    assert len(compiled) <= 1, "once for all batches"
    start, words, seen = model.options().start, model.tokenizer, []
    for text in texts:
        ids, target = (np.array(words(given)["input_ids"]) for given in ("ba " + text, text))
        ids, target = ids[:16], target[:6]
        before = np.append(start, target[:-1])
        seen.append(np.asarray(model.model(ids[None], np.ones((1, len(ids)), bool), before[None])).ravel())
    values = np.concatenate(seen)
    np.testing.assert_allclose(found, (values.mean(), values.mean() + 4 * values.std()), rtol=1e-4)
    with pytest.raises(BadInput, match=r"^texts: there are none to choose the bounds from; give public ones\.$"):
        clipped_sampling.usual_bounds(model, [])


def test_a_folder_gives_back_the_rewriter_at_any_epsilon(tmp_path):
    made = ClippedSampling(t5(), (-5.0, 4.0), 6, 60.0, prefix="ba ", longest=16, source=FixedSeed(2))
    clipped_sampling.save(made, tmp_path)
    texts = [pair.source for pair in sentences(4)]
    loaded = clipped_sampling.load(tmp_path, 60.0, source=FixedSeed(2))
    assert loaded.rewrite(texts) == made.rewrite(texts)
    assert loaded.guarantee() == made.guarantee()
    assert clipped_sampling.load(tmp_path, 6.0).mechanism == ClippedDraws((-5.0, 4.0), 6, 6.0)


@pytest.mark.parametrize("spoiled", [None, "{", "[]", {"tokens": 6, "prefix": "", "longest": 16}, {"bounds": 1}])
def test_a_folder_that_does_not_say_how_texts_are_drawn_is_refused(tmp_path, spoiled):
    if spoiled is not None:
        text = spoiled if isinstance(spoiled, str) else json.dumps(spoiled)
        (tmp_path / "sampling.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"^.*: how texts are drawn cannot be read \(.+\); make it again\.$"):
        clipped_sampling.load(tmp_path, 60.0)


def test_what_was_promised_for_cannot_be_changed():
    made = rewriter(logits())
    for one in (made, made.mechanism):
        for name, value in (("epsilon", 900.0), ("bounds", (-9.0, 9.0)), ("tokens", 900)):
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, value)
    assert len({made, replace(made)}) == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epsilon": 0}, "epsilon = 0: it must be a number above 0; inf stands for no privacy."),
        ({"epsilon": math.nan}, "epsilon = nan: it must be a number above 0; inf stands for no privacy."),
        ({"epsilon": 900.0}, "epsilon = 900.0: for 10 tokens it must lie between 0.00976562 and 800."),
        ({"epsilon": 0.001}, "epsilon = 0.001: for 10 tokens it must lie between 0.00976562 and 800."),
        ({"bounds": (2, 1)}, "bounds = (2.0, 1.0): it must be two finite numbers, the lower one first."),
        ({"bounds": (0, math.inf)}, "bounds = (0.0, inf): it must be two finite numbers, the lower one first."),
        ({"bounds": (1, 1)}, "bounds = (1.0, 1.0): it must be two finite numbers, the lower one first."),
        ({"tokens": 0}, "tokens = 0: it must be a whole number of at least 1."),
        ({"longest": 0}, "longest = 0: it must be a whole number of at least 1."),
        ({"batch": 0}, "batch = 0: it must be a whole number of at least 1."),
        (
            {"prefix": "a b c", "longest": 4},
            "longest = 4: it must be above 4, the tokens of the prefix and the end, or nothing of a text is read.",
        ),
    ],
)
def test_a_wrong_setting_is_refused(changes, sentence):
    with pytest.raises(BadInput) as refused:
        ClippedSampling(**{"pretrained": told(logits()), "bounds": BOUNDS, "tokens": 10, "epsilon": 5.0} | changes)
    assert str(refused.value) == sentence


def test_a_temperature_is_a_positive_number():
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(BadInput, match=r"^temperature = .*: it must be a finite number above 0\.$"):
            ClippedDraws.from_temperature(BOUNDS, 3, wrong)


def test_a_folder_s_setting_that_cannot_be_kept_to_is_refused():
    with pytest.raises(BadInput, match=r"^generation_config\.json: repetition_penalty = 2\.0 is not supported"):
        ClippedSampling(told(logits(), repetition_penalty=2.0), BOUNDS, 10, 5.0)


def test_a_model_without_a_tokenizer_is_refused():
    with pytest.raises(
        BadInput, match=r"^model: its folder has no tokenizer, without which no text can be read; add its files\.$"
    ):
        ClippedSampling(replace(told(logits()), tokenizer=None), BOUNDS, 10, 5.0)
