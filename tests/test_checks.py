"""What a value may be: every boundary from both sides, and the sentence of every refusal."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp import checks
from dpnlp.checks import BadInput

ALLOWED = {
    checks.positive: "must be a finite number above 0.",
    checks.non_negative: "must be a finite number of at least 0.",
    checks.budget: "must be a number above 0; inf stands for no privacy.",
    checks.probability: "must lie strictly between 0 and 1.",
    checks.share: "must lie above 0 and be at most 1.",
    checks.count: "must be a whole number of at least 1.",
}
INSIDE = {
    checks.positive: lambda x: 0 < x < math.inf,
    checks.non_negative: lambda x: 0 <= x < math.inf,
    checks.budget: lambda x: x > 0,
    checks.probability: lambda x: 0 < x < 1,
    checks.share: lambda x: 0 < x <= 1,
    checks.count: lambda x: 1 <= x < math.inf and float(x).is_integer(),
}
BELOW_1, ABOVE_1, LEAST = math.nextafter(1, 0), math.nextafter(1, 2), math.ulp(0.0)
NUMBERS = (0, -0.0, 0.0, LEAST, -LEAST, 0.5, BELOW_1, 1, 1.0, ABOVE_1, 2, 2.5, 1e308, 2**70, -1, -2.5, math.inf)
NO_NUMBERS = (math.nan, -math.inf, True, False, None, 1j, [1], (1,), {}, object, b"1", bytearray(b"1"), Decimal("nan"))
NO_NUMBERS_OF_NUMPY = (np.nan, np.float32("nan"), np.True_, np.False_, np.array(True), np.ones(2), np.array([]))
EVERY = pytest.mark.parametrize("check", ALLOWED, ids=lambda check: check.__name__)


def verdict(check, value):
    """The value as the check gives it back, or the sentence of the refusal."""
    try:
        return check("x", value)
    except BadInput as refusal:
        return str(refusal)


@EVERY
@given(st.sampled_from(NUMBERS) | st.floats(allow_nan=False) | st.integers(-3, 10**9))
def test_a_number_is_accepted_exactly_where_it_is_allowed(check, value):
    expected = value if INSIDE[check](value) else f"x = {value}: it {ALLOWED[check]}"
    assert verdict(check, value) == expected


@EVERY
@pytest.mark.parametrize("value", NO_NUMBERS + NO_NUMBERS_OF_NUMPY, ids=repr)
def test_what_is_no_number_is_refused(check, value):
    assert verdict(check, value) == f"x = {value}: it {ALLOWED[check]}"


@EVERY
@pytest.mark.parametrize("text", ["1", "0.5", "nan", "one", ""])
def test_a_text_is_refused_and_shown_as_one(check, text):
    """Without its quotes the refused text 1 could not be told from the number."""
    assert verdict(check, text) == f"x = {text!r}: it {ALLOWED[check]}"


@EVERY
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8, np.array, Fraction])
def test_any_real_number_becomes_a_plain_one(check, kind):
    value = kind(1)
    if check is checks.probability:
        assert verdict(check, value) == f"x = {value}: it {ALLOWED[check]}"
    else:
        assert verdict(check, value) == 1
        assert type(check("x", value)) is (int if check is checks.count else float)


@pytest.mark.parametrize("kind", [np.float64, np.float32, Fraction, Decimal, np.array])
def test_fractions_keep_their_value(kind):
    assert checks.probability("x", kind(0.25)) == checks.positive("x", kind(0.25)) == 0.25


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (checks.positive, Fraction(1, 10**400)),
        (checks.share, Fraction(1, 10**400)),
        (checks.probability, 1 - Fraction(1, 10**30)),
        (checks.budget, 10**400),
        (checks.count, 10**400),
    ],
)
def test_what_a_float_cannot_hold_is_refused_as_the_float_it_would_become(check, value):
    assert verdict(check, value) == f"x = {value}: it {ALLOWED[check]}"


@given(st.integers(-5, 5), st.integers(-5, 5) | st.sampled_from([0.5, 2.5, -1.5]))
def test_count_starts_where_it_is_told_to(least, value):
    fits = value == int(value) and value >= least
    expected = value if fits else f"n = {value}: it must be a whole number of at least {least}; add some."
    try:
        found = checks.count("n", value, least, "add some")
    except BadInput as refusal:
        found = str(refusal)
    assert found == expected


def test_a_count_is_exact_beyond_the_floats():
    assert checks.count("n", 2**53 + 1) == 2**53 + 1


@pytest.mark.parametrize("check", [checks.positive, checks.non_negative, checks.probability, checks.share])
def test_a_remedy_ends_the_sentence(check):
    with pytest.raises(BadInput) as refusal:
        check("clip", -1, "give --clip")
    assert str(refusal.value) == f"clip = -1: it {ALLOWED[check].removesuffix('.')}; give --clip."


def test_a_refusal_is_a_value_error():
    assert issubclass(BadInput, ValueError)
