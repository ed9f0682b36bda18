"""The guarantee: read back as it was written, never better in words than in numbers, and true of real mechanisms."""

import dataclasses
import itertools
import json
import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, NoiseSource, Term, Trust, Unit, percent, round_up

BASE = Guarantee(
    1.0, 1e-6, Unit.EXAMPLE, Adjacency.ADD_REMOVE, Trust.CENTRAL, Term.of("gaussian", noise_multiplier=1.1)
)

ROUNDING = Decimal("1e-12")
"""What floating point may add or take; more than that must not be rounded away."""

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

words = st.builds(str.__add__, st.sampled_from("aeinqz"), st.text("afin019-", max_size=8))
values = st.integers() | st.floats(allow_nan=False) | words.filter(lambda word: word not in ("inf", "infinity", "nan"))
terms = st.builds(Term, words, st.lists(st.tuples(words, values), max_size=3).map(tuple))
epsilons = st.floats(0) | st.sampled_from([0.0, 1e-300, 5e-324, 0.1, 700.0, 701.0, math.inf])
deltas = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, 5e-324, 1e-300, 1e-12, 1e-5])
guarantees = st.builds(
    Guarantee,
    epsilon=epsilons,
    delta=deltas,
    unit=st.sampled_from(Unit),
    adjacency=st.sampled_from(Adjacency),
    trust=st.sampled_from(Trust),
    mechanism=terms,
    sampler=terms,
    accountant=terms,
    steps=st.integers(1, 2**60),
    noise_source=st.sampled_from(NoiseSource),
    not_covered=st.lists(st.sampled_from(Exposure), unique=True).map(tuple),
    software=st.text(min_size=1).filter(lambda text: not re.search(r"[\s|]", text)),
    canaries=st.integers(0, 10**6),
)


def refusal(call, *arguments, **more) -> str:
    with pytest.raises(BadInput) as refused:
        call(*arguments, **more)
    return str(refused.value)


# Written and read


@PATIENT
@given(guarantees)
@example(dataclasses.replace(BASE, epsilon=math.inf, steps=2**53 + 1))
def test_a_signature_is_one_line_without_spaces_and_is_read_back(guarantee):
    signature = guarantee.signature()
    assert not re.search(r"\s", signature)
    assert len(signature.splitlines()) == 1
    assert Guarantee.parse(signature) == guarantee
    assert Guarantee.parse(f"  {signature}\n") == guarantee


@PATIENT
@given(guarantees)
@example(dataclasses.replace(BASE, epsilon=math.inf, steps=2**53 + 1))
def test_json_is_strict_and_is_read_back(guarantee):
    text = json.dumps(guarantee.to_json(), allow_nan=False)
    assert Guarantee.from_json(json.loads(text)) == guarantee
    assert hash(Guarantee.from_json(json.loads(text))) == hash(guarantee)


def test_canaries_are_named_where_there_are_any_and_nowhere_else():
    with_some = BASE.with_canaries(40).with_canaries(2)
    assert with_some.signature() == BASE.signature().replace("|by:", "|canaries:42|by:")
    assert with_some.to_json() == BASE.to_json() | {"canaries": 42}
    assert "Canaries: 42 records were made up to test the promise on" in with_some.statement()
    assert "anaries" not in BASE.statement() + BASE.signature() + json.dumps(BASE.to_json())


@PATIENT
@given(terms)
def test_a_term_is_read_back(term):
    assert Term.parse(str(term)) == term


def test_the_two_forms_are_as_documented():
    """They stand in papers and in files that exist: a change here needs a new version number."""
    guarantee = dataclasses.replace(BASE, software="dpnlp-9", epsilon=math.inf).with_exposures(Exposure.TUNING)
    assert guarantee.signature() == (
        "eps:inf|delta:1e-06|unit:example|adj:add-remove|trust:central|mech:gaussian(noise_multiplier=1.1)|sampler:none"
        "|steps:1|acct:closed-form|noise:os-entropy|uncovered:tuning|by:dpnlp-9|version:1"
    )
    assert guarantee.to_json() == {
        "version": 1,
        "epsilon": "inf",
        "delta": 1e-06,
        "unit": "example",
        "adjacency": "add-remove",
        "trust": "central",
        "mechanism": "gaussian(noise_multiplier=1.1)",
        "sampler": "none",
        "accountant": "closed-form",
        "steps": 1,
        "noise_source": "os-entropy",
        "not_covered": ["tuning"],
        "software": "dpnlp-9",
    }


def test_numpy_numbers_become_plain_ones():
    made = dataclasses.replace(BASE, epsilon=np.float32(0.5), delta=np.float64(1e-6), steps=np.int64(3))
    assert Guarantee.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_exposures_are_added_once():
    assert BASE.with_exposures(Exposure.TUNING, Exposure.TUNING).not_covered == (Exposure.TUNING,)
    both = BASE.with_exposures(Exposure.TUNING).with_exposures(Exposure.LABELS, Exposure.TUNING)
    assert both.not_covered == (Exposure.TUNING, Exposure.LABELS)
    assert BASE.not_covered == ()


# What is refused


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "version = 2: this dpnlp reads guarantees of version 1."),
        ({"version": 2, "new": 1}, "version = 2: this dpnlp reads guarantees of version 1."),
        ({"version": None}, "version = None: this dpnlp reads guarantees of version 1."),
        ({"epsilom": 1}, "epsilom: a guarantee has no such key; the nearest known one is epsilon."),
        ({"stps": 1}, "stps: a guarantee has no such key; the nearest known one is steps."),
        (
            {"unit": "sentence"},
            "unit = 'sentence': it must be one of word, text, example, document, user, node, subgraph, graph.",
        ),
        ({"unit": None}, "unit = None: it must be one of word, text, example, document, user, node, subgraph, graph."),
        ({"adjacency": "remove"}, "adjacency = 'remove': it must be one of add-remove, replace, zero-out."),
        ({"trust": "nobody"}, "trust = 'nobody': it must be one of central, local."),
        ({"noise_source": "dice"}, "noise_source = 'dice': it must be one of os-entropy, fixed-seed."),
        (
            {"not_covered": ["weather"]},
            f"not_covered = 'weather': it must be one of {', '.join(Exposure)}.",
        ),
        ({"not_covered": "tuning"}, "not_covered = 'tuning': it must be a list."),
        ({"not_covered": None}, "not_covered = None: it must be a list."),
        ({"epsilon": "much"}, "epsilon = 'much': it must be a number."),
        ({"epsilon": True}, "epsilon = True: it must be a number."),
        ({"epsilon": None}, "epsilon = None: it must be a number."),
        ({"epsilon": "nan"}, "epsilon = nan: it must be a number of at least 0, or inf for no guarantee."),
        ({"epsilon": -1}, "epsilon = -1: it must be a number of at least 0, or inf for no guarantee."),
        ({"delta": 1}, "delta = 1: it must be 0 for pure differential privacy, or lie below 1."),
        ({"delta": -0.1}, "delta = -0.1: it must be 0 for pure differential privacy, or lie below 1."),
        ({"delta": "nan"}, "delta = nan: it must be 0 for pure differential privacy, or lie below 1."),
        ({"steps": 0}, "steps = 0: it must be a whole number of at least 1."),
        ({"canaries": -1}, "canaries = -1: it must be a whole number of at least 0."),
        ({"steps": 1.5}, "steps = 1.5: it must be a whole number of at least 1."),
        ({"mechanism": "Gaussian"}, "term = 'Gaussian': it must look like poisson(q=0.01)."),
        ({"mechanism": None}, "term = None: it must look like poisson(q=0.01)."),
        ({"software": "two words"}, "software = 'two words': it must be one word, without spaces and without |."),
        ({"software": "a|b"}, "software = 'a|b': it must be one word, without spaces and without |."),
        ({"software": ""}, "software = '': it must be one word, without spaces and without |."),
    ],
    ids=str,
)
def test_json_that_is_wrong_is_refused_in_one_sentence(change, sentence):
    assert refusal(Guarantee.from_json, BASE.to_json() | change) == sentence


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(Guarantee) if field.name not in ("owner", "canaries")]
)
def test_a_missing_key_is_named(name):
    entry = BASE.to_json()
    del entry[name]
    assert refusal(Guarantee.from_json, entry) == f"{name}: the guarantee lacks this key."


@pytest.mark.parametrize("entry", [None, [], "eps:1", {}])
def test_what_is_no_guarantee_at_all_has_no_version(entry):
    assert refusal(Guarantee.from_json, entry) == "version = None: this dpnlp reads guarantees of version 1."


@pytest.mark.parametrize(
    ("old", "new", "look_at"),
    [
        ("|steps:1|", "|", "steps"),
        ("|steps:1|", "|stps:1|", "steps, stps"),
        ("|steps:1|", "|steps:1|steps:2|", "steps"),
        ("|version:1", "", "version"),
        ("|version:1", "|version:1|x:1|x:1", "x"),
    ],
)
def test_a_signature_must_have_each_key_once(old, new, look_at):
    signature = BASE.signature().replace(old, new)
    keys = "eps, delta, unit, adj, trust, mech, sampler, steps, acct, noise, uncovered, by, version"
    sentence = f"signature = {signature!r}: it must have each of {keys} once; look at {look_at}."
    assert refusal(Guarantee.parse, signature) == sentence


def test_a_signature_of_another_version_says_so_whatever_its_keys_are():
    signature = BASE.signature().replace("version:1", "version:2|colour:red")
    assert refusal(Guarantee.parse, signature) == "version = 2: this dpnlp reads guarantees of version 1."


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("", {}),
        ("Poisson", {}),
        ("pois son", {}),
        ("a|b", {}),
        ("a(q=1)", {}),
        ("1a", {}),
        ("a", {"q": ""}),
        ("a", {"q": "x,y=1"}),
        ("a", {"q": "x)"}),
        ("a", {"q": "two words"}),
        ("a", {"q": "1"}),
        ("a", {"q": "inf"}),
        ("a", {"q": "1_0"}),
        ("a", {"q": math.nan}),
        ("a", {"q": True}),
        ("a", {"": 1}),
        ("a", {"q=": 1}),
        ("a", {"Q": 1}),
    ],
)
def test_a_term_that_could_not_be_read_back_is_refused(name, parameters):
    assert "it must look like poisson(q=0.01)" in refusal(Term, name, tuple(parameters.items()))


@pytest.mark.parametrize("text", ["", "a(", "a)", "a(q)", "a(q=1,)", "a(=1)", "a(q=1)b", "a b", "A"])
def test_a_text_that_is_no_term_is_refused(text):
    assert "it must look like poisson(q=0.01)" in refusal(Term.parse, text)


# What the numbers mean


def promise(epsilon: float, delta: float = 0.0) -> Guarantee:
    return dataclasses.replace(BASE, epsilon=epsilon, delta=delta)


def best_test(first: list[float], second: list[float], false_alarms: float) -> float:
    """Neyman and Pearson: the most telling answers first, the last one by a coin, until the false alarms are spent."""
    found = 0.0
    possible = [(p, q) for p, q in zip(first, second, strict=True) if p]
    for p, q in sorted(possible, key=lambda pair: pair[1] / pair[0]):
        taken = min(1.0, false_alarms / q) if q else 1.0
        found, false_alarms = found + taken * p, false_alarms - taken * q
    return found


def best_guess(first: list[float], second: list[float]) -> float:
    """All deterministic attackers, one after the other: which answers make them say "first"?"""
    best = 0.0
    for says_first in itertools.product([0, 1], repeat=len(first)):
        right = [p if said else q for said, p, q in zip(says_first, first, second, strict=True)]
        best = max(best, sum(right) / 2)
    return best


def response(epsilon: float, delta: float, categories: int) -> tuple[list[float], list[float]]:
    """Randomized response that with probability δ gives the truth away, for the truths 0 and 1."""
    total = math.exp(epsilon) + categories - 1
    noisy = [math.exp(epsilon) / total, *[1 / total] * (categories - 1)]
    first = [(1 - delta) * p for p in noisy]
    second = [first[1], first[0], *first[2:]]
    return [*first, delta, 0.0], [*second, 0.0, delta]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0, math.log(3), 2.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05, 0.5])
def test_randomized_response_attains_the_attack_bounds(epsilon, delta):
    """With two categories it is the worst mechanism there is (Kairouz, Oh and Viswanath 2015): both are equalities."""
    first, second = response(epsilon, delta, 2)
    assert promise(epsilon, delta).attack_success() == pytest.approx(best_guess(first, second), rel=1e-12)
    for false_alarms in (1e-9, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.99, 1 / (1 + math.exp(epsilon))):
        bound = promise(epsilon, delta).detection(false_alarms)
        assert bound == pytest.approx(best_test(first, second, false_alarms), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("categories", [3, 5])
def test_more_categories_are_never_attacked_better(epsilon, categories):
    first, second = response(epsilon, 0.01, categories)
    assert best_guess(first, second) < promise(epsilon, 0.01).attack_success()
    for false_alarms in (0.001, 0.01, 0.2, 0.6):
        assert best_test(first, second, false_alarms) <= promise(epsilon, 0.01).detection(false_alarms) + 1e-12


@PATIENT
@given(st.floats(0.2, 10), st.floats(1e-3, 20), st.floats(1e-6, 1 - 1e-6))
def test_no_test_of_a_gaussian_release_beats_any_point_of_its_curve(sigma, epsilon, false_alarms):
    """N(0, σ²) against N(1, σ²): δ(ε) of Balle and Wang 2018; the best tests are thresholds, tried one by one."""
    delta = norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    guarantee = promise(epsilon, min(max(float(delta), 0.0), 1 - 1e-12))
    thresholds = np.linspace(-10 * sigma, 1 + 10 * sigma, 2001)
    found, alarms = norm.sf(thresholds, loc=1, scale=sigma), norm.sf(thresholds, scale=sigma)
    assert guarantee.attack_success() >= np.max(found + 1 - alarms) / 2 - 1e-12
    assert guarantee.detection(false_alarms) >= norm.sf(norm.isf(false_alarms) - 1 / sigma) - 1e-12


@PATIENT
@given(epsilons, epsilons, deltas, st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_a_larger_epsilon_or_delta_never_promises_more(one, other, delta, false_alarms):
    less, more = promise(min(one, other), delta), promise(max(one, other), delta)
    assert 0.5 <= promise(less.epsilon).attack_success() <= less.attack_success() <= more.attack_success() <= 1
    found = promise(less.epsilon).detection(false_alarms), less.detection(false_alarms), more.detection(false_alarms)
    assert false_alarms * (1 - 1e-12) <= found[0] <= found[1] * (1 + 1e-12)
    assert found[1] <= found[2] * (1 + 1e-12)
    assert found[2] <= 1


def test_nothing_promised_means_nothing_excluded():
    assert promise(math.inf).attack_success() == promise(math.inf).detection(1e-9) == 1
    assert not promise(math.inf).is_private
    assert promise(1e308).is_private


@pytest.mark.parametrize("false_alarms", [0, 1, -0.1, math.nan])
def test_false_alarms_are_a_probability(false_alarms):
    assert refusal(BASE.detection, false_alarms).startswith(f"false_alarms = {false_alarms}: ")


# In plain words

EVERY_COMBINATION = [
    pytest.param(*parts, id="-".join(parts)) for parts in itertools.product(Unit, Adjacency, Trust, NoiseSource)
]
NUMBER = r"[\d,.]*\d(?:e[-+]?\d+)?"


def number(pattern: str, text: str) -> Decimal:
    """The one number that stands where the pattern has #."""
    (found,) = re.findall(pattern.replace("#", f"({NUMBER})"), text)
    return Decimal(found.replace(",", ""))


@PATIENT
@given(st.just(0.0) | st.floats(1e-12, 14), st.just(0.0) | st.floats(1e-300, 0.99))
@example(9.3, 1e-5)
@example(0.1, 2.5e-7)
@example(math.log(3), 0.0)
def test_every_number_in_words_is_rounded_up(epsilon, delta):
    """Against 50 digits, percentages up to a float's last bit; and by no more than a unit of the last place shown."""
    text = promise(epsilon, delta).statement()
    with localcontext() as context:
        context.prec = 50
        e, d, f = Decimal(repr(epsilon)), Decimal(repr(delta)), Decimal("0.01")
        factor = e.exp()
        success = (factor + d) / (factor + 1)
        found = min(Decimal(1), factor * f + d, 1 - (1 - d - f) / factor)
        shown = number(r"ε = #\)", text), number(r"factor of at most # \(", text)
        for exact, said in zip((e, factor), shown, strict=True):
            assert exact * (1 - ROUNDING) <= said <= exact * Decimal("1.001")
        for exact, said in (
            (success, number("is right in at most # %", text)),
            (found, number("finds at most # %", text)),
        ):
            assert 100 * exact - Decimal("1e-12") <= said <= 100 * exact + Decimal("0.0101")
        if delta:
            assert d <= number(r"beyond that by at most # \(this is δ\)", text) <= d * Decimal("1.1")
        else:
            assert "δ" not in text


@pytest.mark.parametrize("epsilon", [14.0001, 20, 32.2, 500, 700, 1e4])
def test_a_huge_factor_is_a_power_of_ten_above_it(epsilon):
    power = number(r"factor of at most 10\^# \(", promise(epsilon).statement())
    assert power - 1 < Decimal(epsilon) / Decimal(10).ln() <= power


@pytest.mark.parametrize(
    ("epsilon", "delta", "said"),
    [
        (0.0, 0.0, ["factor of at most 1 (", "ε = 0)", "at most 50.00 % of the cases"]),
        (9.3, 1e-5, ["factor of at most 10,940 (", "at most 0.00001 (this is δ)"]),
        (1.00000001, 1e-12, ["ε = 1.001)", "at most 1e-12 (this is δ)"]),
        (0.1, 5e-324, ["factor of at most 1.106 (", "at most 5e-324 (this is δ)"]),
        (1e-17, 0.0, ["factor of at most 1.001 ("]),
        (20.0, 0.0, ["factor of at most 10^9 (", "100.00 % of the cases", "excludes hardly anything"]),
    ],
)
def test_numbers_are_written_as_a_reader_expects_them(epsilon, delta, said):
    text = promise(epsilon, delta).statement()
    assert [part for part in said if part not in text] == []


@pytest.mark.parametrize(("unit", "adjacency", "trust", "noise"), EVERY_COMBINATION)
def test_the_statement_reads_well(unit, adjacency, trust, noise):
    guarantee = dataclasses.replace(BASE, unit=unit, adjacency=adjacency, trust=trust, noise_source=noise)
    text = guarantee.statement()
    assert [part.split(".")[0] for part in text.split("\n\n")] == [
        "What is promised",
        "What it means for an attacker",
        "How it was obtained",
        "What is not covered",
    ]
    assert not re.search(r"\b(\w+) \1\b", text)
    assert not re.search(r"\ba [aeio]|\ban [^aeiou]|  | [.,;:]|\.\.|[{}]", text)
    assert all(sentence[0].isupper() for sentence in re.split(r"(?<=[.])\s+(?![a-z]+\()", text))
    assert f"any one {unit} were" in text
    assert f"The promise is for one {unit}." in text
    assert ("before it leaves its owner" in text) == (trust is Trust.LOCAL)
    assert "Each user is" not in text
    assert ("k·ε" in text) == (unit is not Unit.USER)
    task = {
        Adjacency.ADD_REMOVE: f"whether one particular {unit} was in the data, where",
        Adjacency.REPLACE: f"which of two particular {unit}s was in the data, where",
        Adjacency.ZERO_OUT: f"whether one particular {unit} was in the data or blanked out, where",
    }
    assert task[adjacency] in text
    seeded = "The noise came from a fixed seed: whoever knows the seed can take the noise off" in text
    assert seeded == (noise is NoiseSource.FIXED_SEED) == ("seed" in text)


@PATIENT
@given(guarantees.filter(lambda guarantee: guarantee.is_private))
def test_each_exposure_is_told_exactly_where_it_is_there(guarantee):
    text = guarantee.statement()
    assert {exposure for exposure in Exposure if exposure.sentence in text} == set(guarantee.not_covered)


@PATIENT
@given(guarantees.filter(lambda guarantee: guarantee.is_private))
def test_that_the_number_of_records_is_public_is_told_where_neighbours_differ_in_it_and_a_sampler_tells_it(guarantee):
    differ = guarantee.adjacency is Adjacency.ADD_REMOVE and guarantee.sampler != Term("none")
    told = f"The exact number of {guarantee.unit}s is treated as public"
    assert (told in guarantee.statement()) is differ


def test_a_single_person_behind_several_records_is_promised_less():
    assert "promised only k·ε and a larger δ." in promise(1.0, 1e-6).statement()
    assert "promised only k·ε." in promise(1.0).statement()


def test_how_it_was_obtained_is_told():
    made = dataclasses.replace(BASE, sampler=Term.of("poisson", q=0.01), accountant=Term("pld"), steps=1200)
    line = "Mechanism: gaussian(noise_multiplier=1.1), used 1,200 times. Sampler: poisson(q=0.01). Accountant: pld."
    assert f"How it was obtained. {line}\n" in made.statement()
    assert "Mechanism: gaussian(noise_multiplier=1.1), used once. Accountant: closed-form.\n" in BASE.statement()
    cyclic = dataclasses.replace(made, sampler=Term.of("cyclic", lots=10))
    assert " Sampler: cyclic(lots=10). " in cyclic.statement()


@PATIENT
@given(guarantees)
def test_where_nothing_is_promised_no_bound_is_named(guarantee):
    text = dataclasses.replace(guarantee, epsilon=math.inf).statement()
    assert text == (
        f"No privacy is promised (ε = ∞). Whatever stood in the data, any single {guarantee.unit} included, may be "
        "recovered from what is released."
    )
    assert not re.search(r"\d|%|at most", text)


# Rounding up


@PATIENT
@given(st.floats(5e-324, 1e307), st.integers(1, 15))
@example(1e-5, 2)
@example(1e-9, 4)
@example(9.9999999, 4)
@example(5e-324, 4)
@example(1e-320, 3)
def test_round_up_gives_the_least_decimal_that_is_not_below(value, digits):
    """Python formats to the nearest decimal exactly; the answer is that one, or one unit above it."""
    nearest = Decimal(f"{value:.{digits - 1}e}")
    unit = Decimal(1).scaleb(nearest.adjusted() + 1 - digits)
    expected = nearest if float(nearest) >= value else nearest + unit
    rounded = round_up(value, digits)
    assert rounded >= value
    assert rounded == float(expected)
    assert Fraction(rounded) - Fraction(value) <= Fraction(unit) * Fraction(1 + 1e-9) + Fraction(math.ulp(rounded))


@PATIENT
@given(st.floats(1e-300, 1e300), st.integers(1, 15))
def test_rounding_up_twice_changes_nothing(value, digits):
    assert round_up(round_up(value, digits), digits) == round_up(value, digits)


@pytest.mark.parametrize(
    ("value", "digits", "rounded"),
    [(0.0, 3, 0.0), (math.inf, 3, math.inf), (-3.14159, 3, -3.14), (np.float64(1.2341), 4, 1.235), (1.5e308, 1, 2e308)],
)
def test_round_up_at_the_edges(value, digits, rounded):
    assert round_up(value, digits) == rounded


# Who is protected along with whom


def test_protection_is_a_partial_order():
    above = {(a, b) for a in Unit for b in Unit if a.protects(b)}
    assert all((a, a) in above for a in Unit)
    assert all(a is b for a, b in above if (b, a) in above)
    assert all((a, d) in above for a, b in above for c, d in above if b is c)


def test_who_protects_whom():
    below = {unit: {other for other in Unit if unit.protects(other)} - {unit} for unit in Unit}
    assert below == {
        Unit.WORD: set(),
        Unit.TEXT: {Unit.WORD},
        Unit.EXAMPLE: {Unit.WORD},
        Unit.DOCUMENT: {Unit.WORD, Unit.EXAMPLE},
        Unit.USER: {Unit.WORD, Unit.TEXT, Unit.EXAMPLE, Unit.DOCUMENT},
        Unit.NODE: set(),
        Unit.SUBGRAPH: {Unit.NODE},
        Unit.GRAPH: {Unit.NODE, Unit.SUBGRAPH},
    }


@pytest.mark.parametrize(
    ("share", "digits", "written"), [(0.95, 3, "95 %"), (0.5, 3, "50 %"), (1 / 3, 3, "33.3 %"), (0.123456, 2, "12 %")]
)
def test_a_share_is_written_in_hundredths(share, digits, written):
    assert percent(share, digits) == written
