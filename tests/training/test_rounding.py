"""What rounding may add to η, figure by figure: the formulas of the proof, written down a second time."""

import jax
import jax.numpy as jnp
import pytest

from dpnlp.training import rounding

U = 2.0**-24


def on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@pytest.mark.parametrize(("records", "positions", "largest"), [(4, 16, 1.0), (2, 9, 1.0), (3, 16, 5.0)])
def test_a_piece_of_whole_records_is_off_by_what_the_proof_says(records, positions, largest):
    """u P T (w P/2 + (2 + 4/3) √T), and four times that for both lots."""
    root = positions**0.5
    expected = 4 * U * records * positions * (largest * records / 2 + (2 + 4 / 3) * root)
    assert rounding.piece(records, positions, jnp.float32, largest) == (records, positions)
    assert rounding.of_products(records, positions, jnp.float32, largest) == pytest.approx(expected)


def test_the_piece_of_a_single_record_has_no_other_ones_end():
    """u T 2√T; a record that is too long is cut into stretches of t positions, u t 2√T each."""
    assert rounding.of_products(1, 16) == pytest.approx(4 * U * 16 * 2 * 4)
    together, part = rounding.piece(1, 4096, jnp.float32)
    assert together == 1
    assert 1 < part < 4096
    assert rounding.of_products(1, 4096) == pytest.approx(4 * U * part * 2 * 64)


def test_a_piece_is_as_large_as_the_share_of_contractions_allows(monkeypatch):
    for most in (4, 2):
        allowed = rounding.of_products(most, 16) / (4 * U)
        for share, expected in ((allowed, (most, 16)), (allowed * (1 - 1e-9), (most // 2, 16))):
            with monkeypatch.context() as patched:
                patched.setattr(rounding, "_PRODUCTS", share)
                assert rounding.piece(most, 16, jnp.float32) == expected


def test_sums_of_terms_of_parts_and_of_lots_are_off_by_what_the_proof_says():
    assert rounding.of_terms(10) == pytest.approx(4 * U * 10**2 / 2)
    assert rounding.of_terms(10, 3.0) == pytest.approx(4 * U * 3 * 10**2 / 2)
    assert rounding.of_parts(7) == 4 * U * 7
    assert rounding.of_lot(5, 1000) == 8 * U**2 * 5 * 1000
    assert (rounding.length(3, whole=True), rounding.length(9, whole=False)) == (1.0, 6.0)


def test_tensor_cores_round_once_for_eight_products_of_bfloat16(monkeypatch):
    ordinary = rounding.of_products(1, 16, jnp.bfloat16)
    assert rounding.depth(9000, jnp.bfloat16) == rounding.depth(9000, jnp.float32) == 8192 + 2
    on_a_gpu(monkeypatch)
    assert rounding.of_products(1, 16, jnp.bfloat16) == ordinary / 8
    assert rounding.of_products(1, 16, jnp.float32) == ordinary
    assert rounding.depth(16_384, jnp.bfloat16) == 16_384 // 8 + 1
    assert rounding.depth(16_384, jnp.float32) == 8192 + 2


def test_this_compiler_keeps_what_sums_round_away():
    rounding.refuse_reordering()
