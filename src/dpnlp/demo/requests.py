"""What patients write to a clinic's desk, and what it is about: private texts with labels, to be rewritten.

They say by name who writes. What is asked is everyday English, so that the public sentences of `grammar.public` are
alike. A pure function of the seed.
"""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import NamedTuple

from dpnlp import checks
from dpnlp.demo import clinic, everyday
from dpnlp.demo.grammar import held_out
from dpnlp.demo.inflection import Rule, drawn

_ABOUT = {
    "medicine": ("{drug}",),
    "complaints": ("{symptom}", "{part:"),
    "illness": ("{diagnosis}",),
    "hours": ("opens", "closed"),
    "travel": ("{town2}", "Bus"),
    "things": ("{what:",),
}
"""Labels, and what a sentence about each has in its English rule; the first that fits is meant."""
TOPICS = tuple(_ABOUT)


class Request(NamedTuple):
    """A text and its label."""

    text: str
    label: str


def private(count: int, seed: int) -> list[Request]:
    """So many requests, none of which `test` ever gives."""
    return _drawn(count, Random(f"requests {seed}"), apart=False)


def test(count: int, seed: int) -> list[Request]:
    """So many others."""
    return _drawn(count, Random(f"requests to test on {seed}"), apart=True)


def _drawn(count: int, rng: Random, *, apart: bool) -> list[Request]:
    found = (request for request in _requests(rng) if held_out(request.text) is apart)
    return list(islice(found, checks.count("count", count)))


def _requests(rng: Random) -> Iterator[Request]:
    rules = [(rule, topic) for rule in everyday.RULES if (topic := _topic(rule))]
    while True:
        (rule, topic), patient = rng.choice(rules), rng.choice(clinic.PATIENTS)
        _, english = rule.filled(drawn(rule, everyday.SLOTS, rng))
        yield Request(f"{patient.name}: {english}", topic)


def _topic(rule: Rule) -> str:
    return next((topic for topic, signs in _ABOUT.items() if any(sign in rule.en for sign in signs)), "")
