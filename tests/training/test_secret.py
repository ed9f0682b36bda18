"""One secret gives the same draws again, and different ones for every purpose and step."""

import jax
import numpy as np
import pytest

from dpnlp.guarantee import NoiseSource
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training.secret import Secret


def numbers(secret, purpose, step=0):
    return secret.generator(purpose, step).integers(2**62, size=4).tolist()


def key_words(secret, purpose, step=0):
    return tuple(jax.random.key_data(secret.key(purpose, step)).tolist())


def test_the_same_value_gives_the_same_draws():
    first, second = (Secret(bytes(range(32)), NoiseSource.FIXED_SEED) for _ in range(2))
    assert numbers(first, "lot", 3) == numbers(second, "lot", 3)
    assert key_words(first, "noise", 3) == key_words(second, "noise", 3)


def test_a_draw_does_not_depend_on_earlier_draws():
    fresh, used = (Secret.drawn(FixedSeed(1)) for _ in range(2))
    for step in range(5):
        numbers(used, "lot", step)
    assert numbers(used, "lot", 5) == numbers(fresh, "lot", 5)


def test_every_purpose_and_step_has_draws_of_its_own():
    secret = Secret.drawn(FixedSeed(1))
    places = [(purpose, step) for purpose in ("lot", "noise", "epoch", "lot 1") for step in range(50)]
    assert len({tuple(numbers(secret, *place)) for place in places}) == len(places)
    assert len({key_words(secret, *place) for place in places}) == len(places)


def test_generator_and_key_do_not_share_a_stream():
    secret = Secret.drawn(FixedSeed(1))
    seeded = np.random.default_rng(np.array(key_words(secret, "noise"))).integers(2**62, size=4).tolist()
    assert numbers(secret, "noise") != seeded


def test_different_secrets_draw_differently():
    secrets = [Secret.drawn(FixedSeed(seed)) for seed in range(50)]
    assert len({tuple(numbers(secret, "lot")) for secret in secrets}) == 50
    assert len({key_words(secret, "lot") for secret in secrets}) == 50


def test_one_bit_of_the_value_changes_everything():
    value = bytes(32)
    other = bytes(31) + b"\x01"
    drawn = [numbers(Secret(each, NoiseSource.FIXED_SEED), "lot") for each in (value, other)]
    assert not set(drawn[0]) & set(drawn[1])


def test_the_kind_says_where_it_came_from():
    assert Secret.drawn().kind is NoiseSource.OS_ENTROPY
    assert Secret.drawn(FixedSeed(1)).kind is NoiseSource.FIXED_SEED


def test_a_fixed_seed_repeats_and_the_operating_system_does_not():
    assert Secret.drawn(FixedSeed(1)) == Secret.drawn(FixedSeed(1))
    assert Secret.drawn() != Secret.drawn()
    assert len(Secret.drawn().value) == 32


def test_the_value_is_never_shown():
    secret = Secret(b"do not show this, not to anybody", NoiseSource.OS_ENTROPY)
    assert "show" not in f"{secret!r} {secret}"
    assert "OS_ENTROPY" in repr(secret)


@pytest.mark.parametrize("bit", range(256))
def test_all_256_bits_of_the_secret_matter(bit):
    value = int.from_bytes(bytes(range(32)), "little")
    secrets = [Secret(number.to_bytes(32, "little"), NoiseSource.FIXED_SEED) for number in (value, value ^ 1 << bit)]
    assert not {*numbers(secrets[0], "lot")} & {*numbers(secrets[1], "lot")}
    assert key_words(secrets[0], "noise") != key_words(secrets[1], "noise")


def test_every_bit_of_a_key_is_as_likely_on_as_off_and_tells_nothing_of_another():
    """A key of fewer than 64 bits would be found by trial: words that are equal, 0, or made of each other."""
    secret = Secret.drawn(FixedSeed(1))
    words = np.array([key_words(secret, "noise", step) for step in range(600)], dtype=np.uint64)
    bits = ((words[:, :, None] >> np.arange(32, dtype=np.uint64)) & 1).reshape(600, 64).astype(float)
    correlations = np.corrcoef(bits.T) - np.eye(64)
    assert np.max(np.abs(bits.mean(axis=0) - 0.5)) < 5 * 0.5 / np.sqrt(600)
    assert np.max(np.abs(correlations)) < 5.5 / np.sqrt(600)


def test_a_generator_starts_from_as_many_bits_as_the_secret_has(monkeypatch):
    secret, seeds = Secret.drawn(FixedSeed(1)), []
    monkeypatch.setattr(np.random, "default_rng", seeds.append)
    for step in range(300):
        secret.generator("lot", step)
    bits = np.array([[seed >> bit & 1 for bit in range(256)] for seed in seeds])
    assert max(seed.bit_length() for seed in seeds) == 256
    assert np.max(np.abs(bits.mean(axis=0) - 0.5)) < 5.5 * 0.5 / np.sqrt(300)


def test_a_secret_is_32_bytes_of_its_source_and_no_others():
    asked = []

    class Counting:
        kind = NoiseSource.OS_ENTROPY

        def bytes(self, count):
            asked.append(count)
            return bytes(range(count))

    assert Secret.drawn(Counting()).value == bytes(range(32))
    assert asked == [32]
