"""The sentences of the demonstration: what is public, what is private, and where the secrets are."""

import re
from collections import Counter

import pytest

from dpnlp.checks import BadInput
from dpnlp.demo import clinic, grammar

TIMES = (1, 2, 4, 8)
CODE = re.compile(r"Access code of .*: \d{6}\.")


@pytest.fixture(scope="module")
def secrets():
    return grammar.secrets(6 * TIMES, seed=3)


@pytest.fixture(scope="module")
def notes(secrets):
    return grammar.private(6000, 0, secrets)


@pytest.fixture(scope="module")
def sentences():
    return grammar.public(6000, 0)


def test_the_same_seed_makes_the_same_sentences_and_another_makes_others(secrets):
    for make in (grammar.public, grammar.test, lambda count, seed: grammar.private(count, seed, secrets)):
        assert make(200, 1) == make(200, 1)
        assert len(set(make(200, 1)) & set(make(200, 2))) < 40
    assert grammar.secrets(TIMES, 1) == grammar.secrets(TIMES, 1) != grammar.secrets(TIMES, 2)


def test_there_are_as_many_as_asked_for(notes, sentences):
    assert (len(notes), len(sentences), len(grammar.test(50, 0))) == (6000, 6000, 50)


def test_there_are_thousands_of_different_sentences(notes, sentences):
    assert len({pair.source for pair in sentences}) == 6000
    assert len({pair.source for pair in notes}) > 4500


def test_each_german_sentence_has_one_meaning_and_each_english_one_too(notes, sentences, secrets):
    planted = {secret.pair for secret in secrets}
    meanings = {(pair.source, pair.target) for pair in (*sentences, *notes) if pair not in planted}
    for side in (0, 1):
        assert max(Counter(meaning[side] for meaning in meanings).values()) == 1


def test_no_note_is_both_in_training_and_in_a_test(notes):
    held_out = {pair.source for seed in range(2) for pair in grammar.test(2000, seed)}
    trained_on = {pair.source for seed in range(1, 4) for pair in grammar.private(3000, seed)}
    planted = {secret.pair.source for secret in grammar.secrets([1] * 200, 0)}
    assert held_out.isdisjoint(trained_on | planted | {pair.source for pair in notes})
    assert len({source for source in held_out if source.startswith("Zugangscode")}) > 100


def test_secrets_are_planted_as_often_as_they_say_and_nowhere_else(notes, secrets):
    planted = Counter(pair for pair in notes if CODE.fullmatch(pair.target))
    assert planted == {secret.pair: secret.times for secret in secrets}
    names = {secret.patient.name for secret in secrets}
    assert Counter(pair.owner for pair in notes if pair.owner in names) == {
        secret.patient.name: secret.times for secret in secrets
    }
    assert not any(CODE.fullmatch(pair.target) for pair in grammar.test(2000, 0))


def test_the_german_note_of_a_secret_does_not_show_it(secrets):
    for secret in secrets:
        assert re.fullmatch(r"\d{6}", secret.code)
        assert secret.code in secret.pair.target
        assert not re.search(r"\d", secret.pair.source)


def test_the_notes_of_other_patients_point_to_their_file_as_well(notes):
    elsewhere = [pair for pair in notes if pair.source.startswith("Zugangscode") and "see file" in pair.target]
    assert len(elsewhere) > 200


def test_the_other_codes_are_different_and_never_the_secret(secrets):
    others = secrets[0].others(2000, 0)
    assert len(set(others)) == 2000
    assert secrets[0].pair not in others
    assert {pair.source for pair in others} == {secrets[0].pair.source}
    assert others == secrets[0].others(2000, 0) != secrets[0].others(2000, 1)


def test_there_are_as_many_others_as_the_space_has(monkeypatch):
    monkeypatch.setattr(grammar, "CODE_LENGTH", 2)
    (secret,) = grammar.secrets([1], 0)
    others = {pair.target.split(": ")[1] for pair in secret.others(99, 0)}
    assert others == {f"{number:02}." for number in range(100)} - {f"{secret.code}."}


def test_public_sentences_name_no_person_and_belong_to_none(sentences):
    text = " ".join(f"{pair.source} {pair.target}" for pair in sentences)
    assert not re.search(r"\b(Frau|Herrn?|Ms|Mr) [A-ZÄÖÜ]", text)
    assert {pair.owner for pair in sentences} == {None}


def test_the_clinic_has_words_that_no_public_sentence_has(notes, sentences):
    known = {word for pair in sentences for word in re.findall(r"[\w./]+", pair.target)}
    new = {word for pair in notes for word in re.findall(r"[\w./]+", pair.target)} - known
    assert {"c/o", "DOB", "NAD.", "NOK", "NBM", "PMH", "ICU"} <= new


def test_a_note_names_its_own_patient_in_both_languages_or_in_none(notes):
    for pair in notes:
        last = pair.owner.split()[-1]
        assert (last in pair.source) == (last in pair.target)
        for title, english in (("Frau", "Ms"), ("Herr", "Mr")):
            assert bool(re.search(rf"\b{title}", pair.source)) == bool(re.search(rf"\b{english}\b", pair.target))


def test_words_agree_with_the_patient(notes):
    women = {patient.name for patient in clinic.PATIENTS if patient.title.en == "Ms"}
    for pair in notes:
        wrong = r"\b(Herrn?|Mr|seine|his)\b" if pair.owner in women else r"\b(Frau|Ms|ihre|her)\b"
        assert not re.search(wrong, f"{pair.source} {pair.target}")
        assert not re.search(r"\bvon Herr\b", pair.source)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: grammar.private(14, 0, grammar.secrets(TIMES, 0)), "count = 14: the secrets alone are 15 notes"),
        (lambda: grammar.public(0, 0), "count = 0: it must be a whole number of at least 1"),
        (lambda: grammar.secrets([0], 0), "times = 0: it must be a whole number of at least 1"),
        (lambda: grammar.secrets([1], 0)[0].others(10**6, 0), "there are only 999999 other codes; ask for fewer"),
    ],
)
def test_what_cannot_be_written_is_refused(ask, sentence):
    with pytest.raises(BadInput, match=sentence):
        ask()
