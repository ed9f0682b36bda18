"""German articles, endings and contractions against forms written out by hand."""

from random import Random

import pytest

from dpnlp.demo import clinic, everyday, words
from dpnlp.demo.inflection import EnglishNoun, GermanNoun, Rule, Verb, Word, described, drawn, listed

FORMS = {
    ("der", "Mantel"): "der Mantel, den Mantel, dem Mantel, ein Mantel, einen Mantel, einem Mantel",
    ("die", "Lampe"): "die Lampe, die Lampe, der Lampe, eine Lampe, eine Lampe, einer Lampe",
    ("das", "Buch"): "das Buch, das Buch, dem Buch, ein Buch, ein Buch, einem Buch",
}
DESCRIBED = {
    ("der", "Mantel"): "der rote Mantel, den roten Mantel, dem roten Mantel, "
    "ein roter Mantel, einen roten Mantel, einem roten Mantel",
    ("die", "Lampe"): "die rote Lampe, die rote Lampe, der roten Lampe, "
    "eine rote Lampe, eine rote Lampe, einer roten Lampe",
    ("das", "Buch"): "das rote Buch, das rote Buch, dem roten Buch, ein rotes Buch, ein rotes Buch, einem roten Buch",
}
MASCULINE = ("der", "den", "dem", "ein", "einen", "einem")


@pytest.mark.parametrize(("forms", "adjective"), [(FORMS, ""), (DESCRIBED, "rot")])
def test_a_german_noun_takes_its_own_article_and_ending(forms, adjective):
    for (gender, noun), expected in forms.items():
        word = GermanNoun(gender, noun, adjective)
        assert ", ".join(f"{word:{article}}" for article in MASCULINE) == expected


def test_without_an_article_the_adjective_shows_the_gender():
    nouns = (GermanNoun(gender, noun, "rot") for gender, noun in FORMS)
    assert [f"{noun}" for noun in nouns] == ["roter Mantel", "rote Lampe", "rotes Buch"]
    assert f"{GermanNoun('der', 'Mantel')}" == "Mantel"


def test_an_english_noun_has_an_before_a_vowel():
    assert [f"{EnglishNoun('arm'):a}", f"{EnglishNoun('arm', 'left'):a}", f"{EnglishNoun('coat', 'old'):a}"] == [
        "an arm",
        "a left arm",
        "an old coat",
    ]
    assert f"{EnglishNoun('coat', 'old'):the}" == "the old coat"


def test_what_is_listed_is_read_as_nouns_verbs_and_words():
    noun, verb, word = listed("die Lampe = the lamp, sieht / sehen / gesehen = sees / see / seen,\n  heute = today")
    assert noun == Word(GermanNoun("die", "Lampe"), EnglishNoun("lamp"))
    assert verb == Word(Verb("sieht", "sehen", "gesehen"), Verb("sees", "see", "seen"))
    assert word == Word("heute", "today")


@pytest.mark.parametrize(
    ("place", "german"),
    [("der Park = the park", "Sie ist im Park."), ("die Küche = the kitchen", "Sie ist in der Küche.")],
)
def test_prepositions_contract_with_articles(place, german):
    rule = Rule("sie ist in {place:dem}.", "she is in {place:the}.")
    assert rule.filled({"place": listed(place)[0]})[0] == german


def test_a_contraction_leaves_other_words_alone():
    assert Rule("drin dem Text, in demselben.", "x").filled({})[0] == "Drin dem Text, in demselben."


def test_a_sentence_ends_with_one_full_stop():
    assert Rule("nimm {dose}.", "take {dose}.").filled({"dose": Word("b. Bed.", "p.r.n.")}) == (
        "Nimm b. Bed.",
        "Take p.r.n.",
    )


def test_no_word_is_drawn_twice_for_one_sentence():
    rule, slots = Rule("{town} {town2}", "{town} {town2}"), {"town": lambda rng: Word(*2 * [rng.choice("ab")])}
    rng = Random(0)
    assert {frozenset(word.de for word in drawn(rule, slots, rng).values()) for _ in range(50)} == {frozenset("ab")}


def test_half_of_the_nouns_are_described():
    rng, slot = Random(0), described(words.THINGS, words.LOOKS)
    with_adjective = sum(bool(slot(rng).de.adjective) for _ in range(1000))
    assert 430 < with_adjective < 570


@pytest.mark.parametrize(
    ("rules", "slots"),
    [(everyday.RULES, everyday.SLOTS), (clinic.RULES, {**clinic.SLOTS, **clinic.PATIENTS[0].words})],
    ids=["everyday", "clinic"],
)
def test_both_sides_of_a_rule_have_the_same_slots_all_of_which_are_known(rules, slots):
    for rule in rules:
        german, english = rule.slots, Rule(rule.en, rule.de).slots
        assert set(german) == set(english)
        assert {slot.rstrip("2") for slot in german} <= set(slots)
