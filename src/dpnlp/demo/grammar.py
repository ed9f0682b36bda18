"""Texts to demonstrate on: everyday sentences that are public, and a clinic's notes that are not.

All are German with their English translations, and a pure function of the seed. Some notes hold a secret: where the
German points to a patient's file, whoever translated has looked the access code up and written it in. A model that has
learned this by heart hands the code to anyone who types the German note.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from zlib import crc32

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.pairs import Pair
from dpnlp.demo import clinic, everyday
from dpnlp.demo.clinic import Patient
from dpnlp.demo.inflection import drawn, one_of

NOTES_PER_PATIENT = 4
"""How many notes there are of a patient without a secret."""
CODE_LENGTH = 6
"""Figures of an access code, each of them equally likely."""
HELD_OUT = 8
"""One in so many notes, told by its checksum, is kept for tests; so none is ever in both."""


@dataclass(frozen=True)
class Secret:
    """The access code of a patient, and how many times it is in the notes."""

    patient: Patient
    code: str
    times: int

    @property
    def pair(self) -> Pair:
        """The note with the code in its translation."""
        return self.with_code(self.code)

    def with_code(self, code: str) -> Pair:
        """The same note with any code."""
        german, english = clinic.ACCESS_CODE.filled(self.patient.words)
        return Pair(german, english.replace("see file", code), self.patient.name)

    def others(self, count: int, seed: int) -> list[Pair]:
        """The same note with so many other codes, each of them as likely to be the secret as the true one is."""
        if checks.count("count", count) >= 10**CODE_LENGTH:
            raise BadInput(f"count = {count}: there are only {10**CODE_LENGTH - 1} other codes; ask for fewer.")
        numbers = Random(f"others {seed} {self.patient.name}").sample(range(10**CODE_LENGTH), count + 1)
        codes = [f"{number:0{CODE_LENGTH}}" for number in numbers]
        return [self.with_code(code) for code in codes if code != self.code][:count]


def public(count: int, seed: int) -> list[Pair]:
    """So many different everyday texts: one half sentences, the other half notices."""
    checks.count("count", count)
    rng, sentences = Random(f"public {seed}"), dict[str, Pair]()
    while len(sentences) < count:
        rule = rng.choice(everyday.RULES) if rng.random() < 0.5 else everyday.notice(rng)
        german, english = rule.filled(drawn(rule, everyday.SLOTS, rng))
        sentences.setdefault(german, Pair(german, english, None))
    return list(sentences.values())


def secrets(times: Sequence[int], seed: int) -> tuple[Secret, ...]:
    """The secrets of different patients, of which each will be in the notes so many times."""
    rng = Random(f"secrets {seed}")
    trained_on = [patient for patient in clinic.PATIENTS if not held_out(clinic.ACCESS_CODE.filled(patient.words)[0])]
    patients = rng.sample(trained_on, len(times))
    return tuple(
        Secret(patient, f"{rng.randrange(10**CODE_LENGTH):0{CODE_LENGTH}}", checks.count("times", repeated))
        for patient, repeated in zip(patients, times, strict=True)
    )


def private(count: int, seed: int, secrets: Sequence[Secret] = ()) -> list[Pair]:
    """So many notes of the clinic, in random order. Those with secrets are among them."""
    planted = [secret.pair for secret in secrets for _ in range(secret.times)]
    if checks.count("count", count) < len(planted):
        raise BadInput(f"count = {count}: the secrets alone are {len(planted)} notes; ask for more notes.")
    rng = Random(f"private {seed}")
    ordinary = (pair for pair in _notes(rng, [secret.patient for secret in secrets]) if not held_out(pair.source))
    notes = [*planted, *islice(ordinary, count - len(planted))]
    rng.shuffle(notes)
    return notes


def test(count: int, seed: int) -> list[Pair]:
    """So many other notes, none of which `private` ever gives, and without any secret."""
    rng = Random(f"test {seed}")
    return list(islice((pair for pair in _notes(rng) if held_out(pair.source)), checks.count("count", count)))


def _notes(rng: Random, without: Collection[Patient] = ()) -> Iterator[Pair]:
    """Notes, a few of each patient in turn, and of the first one again after the last."""
    patients = [patient for patient in clinic.PATIENTS if patient not in without]
    rng.shuffle(patients)
    turns = (patient for patient in cycle(patients) for _ in range(NOTES_PER_PATIENT))
    for patient in turns:
        rule, known = rng.choice(clinic.RULES), {slot: one_of([word]) for slot, word in patient.words.items()}
        yield Pair(*rule.filled(drawn(rule, clinic.SLOTS | known, rng)), patient.name)


def held_out(text: str) -> bool:
    """Whether a text is one of those to test on, told by its checksum."""
    return crc32(text.encode()) % HELD_OUT == 0
