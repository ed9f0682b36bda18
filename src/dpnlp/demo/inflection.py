"""Words and rules of a grammar that writes the same sentence in German and in English.

A rule is one text in each language, with slots such as {what:den}. What stands after the colon is the form: a German
noun is told its case by the masculine article, and puts its own in its place, as English ones do with "the" and "a".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from string import Formatter
from typing import NamedTuple

_ARTICLES = {
    "der": ("der", "die", "das"),
    "den": ("den", "die", "das"),
    "dem": ("dem", "der", "dem"),
    "ein": ("ein", "eine", "ein"),
    "einen": ("einen", "eine", "ein"),
    "einem": ("einem", "einer", "einem"),
}
"""By the masculine article: that of each gender."""
_ENDINGS = {
    "der": ("e", "e", "e"),
    "den": ("en", "e", "e"),
    "dem": ("en", "en", "en"),
    "ein": ("er", "e", "es"),
    "einen": ("en", "e", "es"),
    "einem": ("en", "en", "en"),
}
"""The ending of an adjective after such an article, for each gender; after none it is as after "ein"."""
_CONTRACTIONS = {"in dem": "im", "an dem": "am", "von dem": "vom", "zu dem": "zum", "zu der": "zur", "bei dem": "beim"}
_LONG = re.compile(rf"\b({'|'.join(_CONTRACTIONS)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class GermanNoun:
    """A noun with its gender, "der", "die" or "das", and perhaps an adjective before it, without an ending."""

    gender: str
    noun: str
    adjective: str = ""

    def __format__(self, article: str) -> str:
        gender = ("der", "die", "das").index(self.gender)
        own = _ARTICLES[article][gender] if article else ""
        adjective = self.adjective + _ENDINGS[article or "ein"][gender] if self.adjective else ""
        return " ".join(filter(None, (own, adjective, self.noun)))


@dataclass(frozen=True)
class EnglishNoun:
    """A noun, and perhaps an adjective before it."""

    noun: str
    adjective: str = ""

    def __format__(self, article: str) -> str:
        text = f"{self.adjective} {self.noun}".strip()
        if article == "a" and text[0] in "aeiou":
            article = "an"
        return f"{article} {text}".strip()


class Verb(NamedTuple):
    """The forms of a verb: of the present, third person singular; of the infinitive; of the participle."""

    now: str
    bare: str
    done: str

    def __format__(self, form: str) -> str:
        return str(getattr(self, form))


Text = str | GermanNoun | EnglishNoun | Verb


class Word(NamedTuple):
    """The same in both languages."""

    de: Text
    en: Text


Slot = Callable[[Random], Word]
"""What may stand in a slot, drawn at random."""


class Rule(NamedTuple):
    """A sentence with slots in both languages. Slots of one name, but for a digit behind it, are filled alike."""

    de: str
    en: str

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots, in the order of the German sentence."""
        return _slots(self.de)

    def filled(self, words: Mapping[str, Word]) -> tuple[str, str]:
        """The German and the English sentence with these words."""
        german = self.de.format(**{slot: word.de for slot, word in words.items()})
        english = self.en.format(**{slot: word.en for slot, word in words.items()})
        return _finished(_LONG.sub(_contracted, german)), _finished(english)


def drawn(rule: Rule, slots: Mapping[str, Slot], rng: Random) -> dict[str, Word]:
    """Words for a rule, no two of them the same."""
    words: dict[str, Word] = {}
    for name in rule.slots:
        word = slots[name.rstrip("2")](rng)
        while word in words.values():
            word = slots[name.rstrip("2")](rng)
        words[name] = word
    return words


def one_of(words: Sequence[Word]) -> Slot:
    """Any of these words."""
    return lambda rng: rng.choice(words)


def listed(text: str) -> tuple[Word, ...]:
    """Words written as German = English, with commas between; nouns have their articles, verbs their three forms."""
    return tuple(_word(*entry.strip().split(" = ")) for entry in text.split(","))


def described(nouns: Sequence[Word], adjectives: Sequence[Word]) -> Slot:
    """Any of these nouns, half of the time with an adjective."""

    def draw(rng: Random) -> Word:
        noun, adjective = rng.choice(nouns), rng.choice(adjectives)
        if rng.random() < 0.5 or not isinstance(noun.de, GermanNoun) or not isinstance(noun.en, EnglishNoun):
            return noun
        return Word(replace(noun.de, adjective=str(adjective.de)), replace(noun.en, adjective=str(adjective.en)))

    return draw


def _word(german: str, english: str) -> Word:
    gender, _, noun = german.partition(" ")
    if gender in ("der", "die", "das") and english.startswith("the "):
        return Word(GermanNoun(gender, noun), EnglishNoun(english.removeprefix("the ")))
    if german.count(" / ") == 2:
        return Word(Verb(*german.split(" / ")), Verb(*english.split(" / ")))
    return Word(german, english)


@cache
def _slots(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(text) if name))


def _contracted(long: re.Match[str]) -> str:
    """The short form, with a capital letter where the long one has it."""
    short = _CONTRACTIONS[long[0].lower()]
    return short.capitalize() if long[0][0].isupper() else short


def _finished(sentence: str) -> str:
    """With a capital letter first, and one full stop where an abbreviation ends the sentence."""
    return sentence[0].upper() + sentence[1:].replace("..", ".")
