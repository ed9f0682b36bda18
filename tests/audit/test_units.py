"""Who is attacked: as many others as members, and nobody on both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.audit.units import LEAST, numbered, units
from dpnlp.checks import BadInput
from dpnlp.data.plain import Text
from dpnlp.data.questions import Question
from dpnlp.guarantee import Unit


def texts(numbers, owners=0):
    """A text for each number; with owners, so many of these take turns."""
    return [Text(f"text {number}", f"owner {number % owners}" if owners else None) for number in numbers]


@given(st.sets(st.integers(0, 60), min_size=30), st.sets(st.integers(0, 60), min_size=30), st.integers(10, 40))
def test_no_text_of_the_training_set_is_among_the_others(training, others, most):
    apart = others - training
    if len(apart) < LEAST:
        with pytest.raises(BadInput, match=f"and {len(apart)} others are not in it; give more by --others"):
            units(texts(training), texts(others), Unit.EXAMPLE, most, 0)
        return
    found = units(texts(training), texts(others), Unit.EXAMPLE, most, 0)
    members, outside = ({text for unit in side for text in unit} for side in (found.members, found.others))
    assert len(found.members) == len(found.others) == min(most, len(training), len(apart))
    assert outside <= {*texts(apart)}
    assert members | {text for unit in found.rest for text in unit} == {*texts(training)}
    assert found.are_members.tolist() == [True] * len(members) + [False] * len(outside)
    assert found.attacked == found.members + found.others


def test_an_owner_in_the_training_set_is_no_other_whatever_the_texts_are():
    training, others = texts(range(100), owners=20), [Text(f"other {n}", f"owner {n % 35}") for n in range(100)]
    found = units(training, others, Unit.USER, 100, 0, each=3)
    inside, outside = ({text.owner for unit in side for text in unit} for side in (found.members, found.others))
    assert outside == {f"owner {n}" for n in range(20, 35)}
    assert inside <= {f"owner {n}" for n in range(20)}
    assert all(len({text.owner for text in unit}) == 1 and len(unit) <= 3 for unit in found.attacked)
    assert len(found.members) == len(found.others) == 15


def test_a_text_that_is_there_twice_is_one_unit_with_all_its_records():
    found = units(texts([*range(12), 0, 1]), texts(range(20, 40)), Unit.EXAMPLE, 50, 0)
    assert sorted(map(len, found.members)) == [1] * 10 + [2] * 2


def test_a_question_is_what_it_asks_and_not_its_id():
    made = [Question(f"q{n}", f"who {n}?", "text", (), None) for n in range(40)]
    others = [question._replace(id=f"dev {n}") for n, question in enumerate(made[10:])]
    found = units(made[:20], others, Unit.EXAMPLE, 50, 0)
    assert {unit[0].question for unit in found.others} == {f"who {n}?" for n in range(20, 40)}


def test_the_seed_draws():
    one, same, other = (units(texts(range(200)), texts(range(200, 400)), Unit.EXAMPLE, 20, seed) for seed in (0, 0, 1))
    assert one == same
    assert one.members != other.members
    assert one.others != other.others
    assert not {*one.members} & {*one.rest}


def test_records_are_numbered_by_their_unit():
    records, of = numbered([texts([1, 2]), texts([3])])
    assert (records, of.tolist()) == (texts([1, 2, 3]), [0, 0, 1])


def test_without_owners_there_is_no_user():
    with pytest.raises(BadInput, match="the unit is one user, and nothing says whose each of the others is"):
        units(texts(range(20), owners=20), texts(range(20)), Unit.USER, 20, 0)


def test_too_few_records_are_asked_for():
    with pytest.raises(BadInput, match="records = 3"):
        units(texts(range(20)), texts(range(20, 40)), Unit.EXAMPLE, 3, 0)
