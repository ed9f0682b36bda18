"""Texts that are rewritten together (laws 4 and 13): does exchanging one change what may come out for another?"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models import generation, sentence_vectors
from dpnlp.models.pretrained.autoencoders import fresh_autoencoder
from dpnlp.models.sentence_vectors import SentenceEncoder
from dpnlp.rewriting import clipped_sampling
from dpnlp.rewriting.adept import Adept
from dpnlp.rewriting.clipped_sampling import ClippedSampling
from dpnlp.rewriting.echo import Bank, Echo
from dpnlp.rewriting.noisy_echo import NoisyEcho

from ..models.real_weights import minilm
from ..rewriting import barts
from ..rewriting.test_clipped_sampling import t5
from ..tasks import readers
from .conftest import THOROUGH


def said(count, rng, longest=40):
    """Texts of 0 to `longest` words, most of them short."""
    lengths = np.minimum(rng.geometric(0.15, count) - 1, longest)
    return [" ".join(rng.choice(readers.WORDS, size=length)) for length in lengths]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert") / "encoder"
    readers.encoder(folder)
    return SentenceEncoder.load(folder, longest=40)


def others_changed(of_texts, count, exchanges, rng):
    """How many other texts have another outcome once one is exchanged; `of_texts` gives what decides about each."""
    texts = said(count, rng)
    before, changed = of_texts(texts), 0
    for place in rng.choice(count, size=exchanges, replace=False):
        exchanged = list(texts)
        exchanged[place] = said(1, rng)[0] + " ba de gi"
        after = of_texts(exchanged)
        changed += int(np.sum(np.any(np.delete(before != after, place, axis=0), axis=1)))
    return changed


def preferred(rewriter):
    """The sentences that are preferred for each text, which is all that the outcome's distribution depends on."""
    m = rewriter.mechanism.preferred
    return lambda texts: np.sort(rewriter.bank.nearest(rewriter.encoder(texts), m), axis=1)


def test_echo_prefers_the_same_sentences_whoever_else_is_rewritten(encoder, report):
    rng = np.random.default_rng(0)
    rewriter = Echo(Bank.of(said(400, rng), encoder), encoder, 4.0)
    count, exchanges = (10_000, 200) if THOROUGH else (200, 4)
    report(
        f"Echo, {exchanges} of {count:,} texts exchanged", 0, others_changed(preferred(rewriter), count, exchanges, rng)
    )


def test_sentences_that_only_the_last_bit_tells_apart_are_preferred_alike_in_every_batch(tries, report):
    """In floating point the last bits of a similarity depend on how many texts there are, and here they decide."""
    rng, differing = np.random.default_rng(4), 0
    for _ in range(tries(3)):
        vectors = rng.normal(size=(1, 384)) + 1e-7 * rng.normal(size=(300, 384))
        vectors = np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        bank = Bank(tuple(map(str, range(300))), vectors, np.zeros(299, np.float32))
        texts = np.float32(rng.normal(size=(70, 384)) / np.sqrt(384))
        together = bank.nearest(texts, 20)
        for size in (1, 2, 3, 7, 33, 64):
            differing += int(np.sum(np.sort(bank.nearest(texts[:size], 20)) != np.sort(together[:size])))
    report("Echo, sentences that are nearly the same", 0, differing)


@pytest.mark.skipif(not THOROUGH, reason="takes minutes")
def test_echo_on_real_weights_prefers_the_same_sentences(report):
    """A text alone, among others, and among these in another order."""
    rng, encoder = np.random.default_rng(1), SentenceEncoder.load(minilm())
    texts = said(2_000, rng)
    of_texts = preferred(Echo(Bank.of(said(400, rng), encoder), encoder, 4.0))
    together, order = of_texts(texts), rng.permutation(len(texts))
    changed = np.any(of_texts([texts[one] for one in order]) != together[order], axis=1).sum()
    for one in rng.choice(len(texts), size=200, replace=False):
        changed += np.any(of_texts([texts[one]])[0] != together[one])
    report("Echo on real weights, texts alone and in another order", 0, int(changed))


def test_how_far_a_text_is_padded_follows_from_that_text(encoder, monkeypatch, report):
    """In another shape the last bits are other ones, so that shapes are looked at, and not bits of a micro network."""
    shapes, compute = [], sentence_vectors._vectors
    monkeypatch.setattr(
        sentence_vectors, "_vectors", lambda *given: shapes.append((given[2].shape, given[3].sum())) or compute(*given)
    )
    encoder(["ba de"])
    (alone,) = shapes
    encoder(["ba de", "ba " * 30])
    report("a short text beside a long one, padded otherwise", 0, int(alone not in shapes[1:]))


def test_vectors_and_latents_have_the_same_bits_whoever_else_is_encoded(encoder, tries, report):
    rng = np.random.default_rng(2)
    noisy = NoisyEcho(Bank.of(said(60, rng), encoder), encoder, 2.0, 1e-6, 8)
    for name, of_texts in {"vectors": encoder, "noisy Echo": noisy.encode}.items():
        changed = sum(others_changed(of_texts, int(count), 2, rng) for count in rng.integers(3, 90, size=tries(2)))
        report(f"{name}, a text exchanged", 0, changed)


def test_latents_of_autoencoders_have_the_same_bits_whoever_else_is_encoded(tries, report):
    rng = np.random.default_rng(3)
    ways = {"DP-BART": barts.micro().encode, "ADePT": Adept(fresh_autoencoder(readers.WORDS, longest=20), 2.0).encode}
    for name, of_texts in ways.items():
        changed = sum(others_changed(of_texts, int(count), 2, rng) for count in rng.integers(3, 90, size=tries(1)))
        report(f"{name}, a text exchanged", 0, changed)


def drawn_from(rewriter, monkeypatch):
    """For each text the length that it is padded to, and the logits that its tokens are drawn from, up to its end.

    In another shape the last bits are other ones, but in a micro network not always.
    """
    lengths, seen, search, draw = [], [], generation.search.__wrapped__, generation._drawn

    def watched(logits, keys, options):
        tokens = draw(logits, keys, options)
        jax.debug.callback(lambda *both: seen[-1].append(both), logits, tokens, ordered=True)
        return tokens

    compiled = jax.jit(
        lambda *given, options: search(*given, options=options), static_argnums=0, static_argnames="options"
    )

    def of_batch(structure, weights, ids, *given, options):
        lengths.append(ids.shape[1])
        seen.append([])
        return jax.block_until_ready(compiled(structure, weights, ids, *given, options=options))

    monkeypatch.setattr(generation, "_drawn", watched)
    monkeypatch.setattr(clipped_sampling, "search", of_batch)
    (end,) = rewriter.options.ends

    def of_texts(texts):
        lengths.clear(), seen.clear()
        replace(rewriter, source=FixedSeed(0)).rewrite(texts)
        jax.effects_barrier()
        found = []
        for length, turns in zip(lengths, seen, strict=True):
            batch = np.zeros((1 + rewriter.tokens, *turns[0][0].shape), np.float32)
            batch[0], goes_on = length, np.ones(batch.shape[1], bool)
            for turn, (logits, tokens) in enumerate(turns, 1):
                batch[turn, goes_on] = logits[goes_on]
                goes_on &= np.asarray(tokens) != end
            found.append(batch.swapaxes(0, 1))
        return np.concatenate(found)[: len(texts)].reshape(len(texts), -1)

    return of_texts


def test_tokens_are_drawn_from_logits_of_the_same_bits_whoever_else_is_rewritten(monkeypatch, tries, report):
    """Each text is exchanged once, the longest and the shortest of its batch among them."""
    rng = np.random.default_rng(5)
    for count in (20, *rng.integers(3, 90, size=tries(1) - 1).tolist()):
        made = ClippedSampling(t5(), (-5.0, 5.0), 6, 60.0, prefix="ba ", longest=40, batch=8, source=FixedSeed(0))
        with monkeypatch.context() as patched:
            of_texts = drawn_from(made, patched)
            assert len(np.unique(of_texts(said(count, rng)), axis=0)) > count / 2
            changed = others_changed(of_texts, count, count, rng)
        report(f"clipped sampling, {count} texts exchanged", 0, changed)
