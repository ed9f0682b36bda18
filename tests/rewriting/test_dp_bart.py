"""DP-BART against the theorems: what it releases, what it promises, and that nothing passes by the noise."""

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import transformers
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from dpnlp.checks import BadInput
from dpnlp.guarantee import Exposure, NoiseSource, Unit
from dpnlp.mechanisms import Gaussian, Laplace
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models import bart
from dpnlp.models.pretrained import Pretrained
from dpnlp.rewriting import dp_bart
from dpnlp.rewriting.bart_autoencoder import Autoencoder, Budget
from dpnlp.rewriting.bottleneck import Bottleneck
from dpnlp.rewriting.dp_bart import DPBart
from dpnlp.tasks.translation import Writing

from ..mechanisms.audit import epsilon_lower_bound
from .barts import micro, sentences

WRITING = Writing(longest=6, beams=2, batch=8)
PRUNED = (0, 3, 4)


def rewriter(epsilon=50.0, delta=1e-5, seed=0, pruned=PRUNED, **changes):
    given = {"writing": WRITING, "source": FixedSeed(seed)} | changes
    return DPBart(micro(pruned=pruned), epsilon, delta, **given)


@dataclass(frozen=True)
class Extreme(DPBart):
    """Its encoder is all that an encoder could be: of the text "+" every entry is large, of all others very small."""

    def encode(self, texts):
        return np.array([[9.0 if text == "+" else -9.0] * self.clip.dimension for text in texts])


# Sensitivity and noise


@given(arrays.arrays(np.float32, (2, 3, 4), elements=st.floats(width=32, allow_nan=False)))
def test_no_two_texts_are_farther_apart_than_the_sensitivities(states):
    bottleneck = Bottleneck(4, 3, 0.5, pruned=(1,))
    one, other = bottleneck.clip(bottleneck.latents(states))
    sensitivity = bottleneck.clip.sensitivity
    assert np.abs(one - other).sum() <= sensitivity.l1 == pytest.approx(2 * 0.5 * 9)
    assert np.linalg.norm(one - other) <= sensitivity.l2 * (1 + 1e-15)
    assert sensitivity.l2 == pytest.approx(2 * 0.5 * math.sqrt(9))


def test_some_texts_are_as_far_apart_as_the_sensitivities():
    made = Extreme(micro(), 1.0, 1e-5)
    one, other = made.clip(made.encode(["+", "-"]))
    assert np.abs(one - other).sum() == made.clip.sensitivity.l1
    assert np.linalg.norm(one - other) == pytest.approx(made.clip.sensitivity.l2)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_kept_neurons_have_the_noise_of_the_theorem_and_pruned_ones_are_zero(delta):
    made, texts = rewriter(20.0, delta), sentences(12) * 100
    clean = replace(made, epsilon=math.inf)
    bottleneck = made.autoencoder.bottleneck
    noisy, calm = (bottleneck.states(each.latents(texts)) for each in (made, clean))
    assert noisy.shape == (1200, 6, 8)
    assert not noisy[..., PRUNED].any()
    drawn = (noisy - calm)[..., bottleneck.kept].ravel()
    n = 6 * 5
    if delta:
        law = stats.norm(scale=Gaussian(2 * 0.5 * math.sqrt(n), 20.0, delta).sigma)
    else:
        law = stats.laplace(scale=2 * 0.5 * n / 20.0)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
    assert np.var(drawn) == pytest.approx(law.var(), rel=0.05)
    assert np.abs(calm).max() <= 0.5
    assert len(np.unique(drawn)) > 0.99 * drawn.size


@pytest.mark.parametrize(("pruned", "sigma"), [(0, 0.8957), (586, 0.4360)])
def test_thesis_section_6_6_1(pruned, sigma):
    """σ at ε = 500, δ = 1e-5, C = 0.1 and 20 tokens, which the thesis prints as σ²."""
    assert rewriter_of_bart_base(pruned).mechanism.sigma == pytest.approx(sigma, abs=5e-5)


def rewriter_of_bart_base(pruned):
    """Its shape alone, without weights."""
    theirs = transformers.BartConfig(vocab_size=300)
    shape = bart.Config(300, 768, 1, 12, 8, 1, 12, 8, 1024)
    model = nnx.eval_shape(lambda: bart.BART(shape, rngs=nnx.Rngs(0)))
    theirs.d_model = 768
    tokenizer = micro().pretrained.tokenizer
    pretrained = Pretrained(model, theirs, transformers.GenerationConfig(), tokenizer)
    return DPBart(Autoencoder(pretrained, Bottleneck(768, 20, 0.1, tuple(range(pruned)))), 500, 1e-5)


def audited(made, trials=60_000):
    """A lower bound on ε by the two texts that are farthest apart, and the event that shows noise cut by √2 best."""
    z, C = {text: made.latents([text] * trials) for text in "+-"}, 0.5
    assert z["+"].shape == (trials, 2)
    if made.delta:
        sigma = Gaussian(2 * C * math.sqrt(2), made.epsilon, made.delta).sigma / math.sqrt(2)
        threshold = sigma**2 * made.epsilon / (2 * C)  # where the likelihood ratio is e^ε
        hits, others = (int(np.sum(each.sum(axis=1) > threshold)) for each in z.values())
    else:
        hits, others = (int(np.sum(each.min(axis=1) > C)) for each in z.values())
    return epsilon_lower_bound(hits, others, trials, made.delta)


def extreme(delta):
    return Extreme(replace(micro(), bottleneck=Bottleneck(8, 2, 0.5, tuple(range(7)))), 1.5, delta, source=FixedSeed(7))


@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_an_audit_of_the_latent_finds_the_promise_kept(delta):
    assert 1.0 < audited(extreme(delta)) < 1.5


@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_an_audit_of_the_latent_finds_out_noise_divided_by_the_root_of_two(delta):
    made = extreme(delta)
    less = replace(made.mechanism, sensitivity=made.mechanism.sensitivity / math.sqrt(2))
    object.__setattr__(made, "mechanism", less)
    assert audited(made) > 1.5


# Nothing passes by the latent


def test_texts_of_all_lengths_with_the_same_noisy_latent_become_the_same_text():
    made = rewriter()
    latent = made.latents(["ba be"])

    class Same(Gaussian):
        def release(self, value):
            return np.repeat(latent, len(value), axis=0)

    object.__setattr__(made, "mechanism", Same(1.0, 1.0, 1e-5))
    texts = ["", "du", "ba be bi bo bu da de di do du", "ba be", "?!"]
    assert made.rewrite(texts) == [made.decode(latent)[0]] * len(texts)


def test_texts_differ_with_their_latents_or_the_tests_here_would_prove_nothing():
    assert len(set(rewriter(1e6).rewrite(sentences(16, longest=4)))) > 4


@pytest.mark.parametrize("epsilon", [50.0, math.inf])
def test_batchmates_do_not_matter(epsilon):
    """With noise that is the same for each place, as one draw after the other from one seed is not."""
    texts = sentences(11)
    made = rewriter(epsilon)
    latents = made.latents(texts)
    together = made.decode(latents)
    assert [made.decode(latents[place : place + 1])[0] for place in range(11)] == together
    np.testing.assert_allclose(
        np.concatenate([made.encode([text]) for text in texts]), made.encode(texts), rtol=1e-5, atol=1e-5
    )
    if epsilon == math.inf:
        assert made.rewrite(texts) == together
        assert made.rewrite(texts[::-1]) == together[::-1]


def test_what_lies_behind_the_last_token_that_fits_is_not_read():
    made = rewriter(math.inf)
    long = "ba be bi bo bu da de di do du"
    tokens = made.autoencoder.tokens([long, f"{long} ba ba"])
    end = made.autoencoder.pretrained.tokenizer.eos_token_id
    assert tokens["ids"].shape == (2, 6)
    assert tokens["mask"].all()
    assert tokens["ids"][0, -1] == end
    assert not (tokens["ids"][0, :-1] == end).any()
    np.testing.assert_array_equal(tokens["ids"][0], tokens["ids"][1])
    assert len(set(made.rewrite([long, f"{long} ba ba"]))) == 1


def test_empty_texts_and_no_texts():
    made = rewriter()
    assert len(made.rewrite(["", "  "])) == 2
    assert made.rewrite([]) == []
    assert made.latents([]).shape == (0, 30)


def test_no_text_is_refused(monkeypatch):
    made = rewriter()
    assert len(made.rewrite(["\ud800 ba", "\x00", "ba \udfff" * 50])) == 3
    np.testing.assert_array_equal(made.encode(["ba \ud800"]), made.encode(["ba ?"]))
    broken = np.full((2, 30), 0.25, np.float32)
    broken[1] = np.nan
    monkeypatch.setattr(Autoencoder, "encode", lambda self, texts, batch: broken)
    np.testing.assert_array_equal(rewriter(math.inf).latents(["ba", "be"]), [[0.25] * 30, [0.0] * 30])


# ε


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_no_epsilon_no_rewriting(epsilon):
    with pytest.raises(BadInput, match=r"epsilon = .*: it must be a number above 0"):
        rewriter(epsilon)


def test_without_a_bound_nothing_is_rewritten():
    with pytest.raises(BadInput, match="bound = None: states of any size have no sensitivity"):
        DPBart(micro(bound=None), 1.0, 1e-5)


def test_an_infinite_epsilon_clips_and_adds_no_noise():
    made = rewriter(math.inf)
    states = made.encode(sentences(5))
    assert np.abs(states).max() > 0.5
    np.testing.assert_array_equal(made.latents(sentences(5)), np.clip(states.astype(np.float64), -0.5, 0.5))
    assert not made.guarantee().is_private
    assert made.rewrite(sentences(5)) == made.decode(made.clip(states))


@pytest.mark.parametrize(("delta", "kind"), [(0.0, Laplace), (1e-5, Gaussian)])
def test_the_guarantee_is_the_mechanisms(delta, kind):
    made = rewriter(3.0, delta)
    promised = made.guarantee()
    assert isinstance(made.mechanism, kind)
    assert (promised.epsilon, promised.delta, promised.unit) == (3.0, delta, Unit.TEXT)
    assert promised.noise_source is NoiseSource.FIXED_SEED
    assert promised.not_covered == ()
    assert made.guarantee_for_person(4).epsilon == 12.0
    assert DPBart(micro(), 3.0, delta).guarantee().noise_source is NoiseSource.OS_ENTROPY


def test_a_seed_gives_the_same_texts_and_the_operating_system_does_not():
    texts = sentences(20)
    assert rewriter(seed=4).rewrite(texts) == rewriter(seed=4).rewrite(texts)
    systems = DPBart(micro(), 50.0, 1e-5, WRITING)
    one, other = (systems.latents(texts) for _ in range(2))
    assert one.shape == (20, 48)
    assert not np.isin(one, other).any()
    assert len(np.unique(one)) == one.size


# Folders


def test_a_folder_gives_back_the_rewriter(tmp_path):
    autoencoder = replace(micro(pruned=PRUNED), trained_for=Budget(50.0, 1e-5)).exposing(
        Exposure.PRETRAINING, Exposure.VOCABULARY
    )
    autoencoder.save(tmp_path / "model")
    loaded = replace(dp_bart.load(tmp_path, 50.0, 1e-5, FixedSeed(3)), writing=WRITING)
    assert loaded.autoencoder.bottleneck == autoencoder.bottleneck
    assert loaded.autoencoder.trained_for == autoencoder.trained_for
    texts = sentences(6)
    assert loaded.rewrite(texts) == rewriter(seed=3).rewrite(texts)
    promised = loaded.guarantee()
    assert promised.not_covered == (Exposure.PRETRAINING, Exposure.VOCABULARY)
    assert loaded.guarantee_for_person(2).not_covered == promised.not_covered


def test_transformers_writes_the_same_texts_from_the_same_states(tmp_path):
    """Opened there, read there, clipped and pruned by hand, and written there by beam search over all positions."""
    torch = pytest.importorskip("torch")
    made, texts = rewriter(math.inf), sentences(8, seed=5)
    made.autoencoder.save(tmp_path / "model")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    read = tokenizer(texts, padding="max_length", max_length=6, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        mask = read["attention_mask"]
        states = theirs.get_encoder()(read["input_ids"], attention_mask=mask).last_hidden_state.clamp(-0.5, 0.5)
        states[:, :, list(PRUNED)] = 0
        outputs = transformers.modeling_outputs.BaseModelOutput(states)
        settings = {"num_beams": 2, "max_new_tokens": 6, "do_sample": False}
        found = theirs.generate(encoder_outputs=outputs, attention_mask=torch.ones_like(mask), **settings)
    expected = [text.strip() for text in tokenizer.batch_decode(found, skip_special_tokens=True)]
    assert made.rewrite(texts) == expected
    assert len(set(expected)) > 3


def test_another_epsilon_than_a_model_was_trained_for_is_warned_of_and_holds():
    trained = replace(micro(), trained_for=Budget(500.0, 1e-5))
    with pytest.warns(UserWarning, match=r"epsilon = 20.0, .*: the model was trained for .* ε = 500.0, δ = 1e-05"):
        made = DPBart(trained, 20.0, 1e-5)
    assert made.mechanism == DPBart(micro(), 20.0, 1e-5).mechanism
    assert made.guarantee().epsilon == 20.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DPBart(trained, 500.0, 1e-5)


def test_a_plain_bart_has_no_bottleneck(tmp_path):
    with pytest.raises(BadInput, match=r"there is no dp_bart.json in it; load a BART with"):
        dp_bart.load(tmp_path, 1.0, 1e-5)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [('"format": 1', '"format": 2', "format = 2"), ('"length"', '"longth"', "it cannot be read"), ("{", "", "read")],
)
def test_a_file_that_is_not_ours_is_one_sentence(tmp_path, old, new, sentence):
    micro().save(tmp_path / "model")
    path = tmp_path / "model" / "dp_bart.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BadInput, match=sentence):
        dp_bart.load(tmp_path, 1.0, 1e-5)
