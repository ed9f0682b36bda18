"""Everyday German and English, as anyone may know it: what the small model is pre-trained on.

It speaks of health in general, and never of a person by name.
"""

from random import Random

from dpnlp.demo import words
from dpnlp.demo.inflection import Rule, Slot, Word, described, one_of


def number(low: int, high: int) -> Slot:
    """A whole number, the same in both languages."""

    def draw(rng: Random) -> Word:
        figures = str(rng.randint(low, high))
        return Word(figures, figures)

    return draw


def clock(rng: Random) -> Word:
    """A time of day: "um 8 Uhr", or "um 14.30 Uhr"."""
    hour, minute = rng.randint(6, 21), rng.choice((0, 0, 10, 15, 20, 30, 40, 45, 50))
    return Word(f"um {hour}.{minute} Uhr", f"at {hour}:{minute}") if minute else Word(f"um {hour} Uhr", f"at {hour}:00")


def date(rng: Random) -> Word:
    """A day of a month."""
    day, month = rng.randint(1, 28), rng.choice(words.MONTHS)
    return Word(f"{day}. {month.de}", f"{day} {month.en}")


def span(rng: Random) -> Word:
    """How long, in the dative: "drei Tagen"."""
    count, unit = rng.choice(words.COUNTS), rng.choice(words.SPANS)
    return Word(f"{count.de} {unit.de}", f"{count.en} {unit.en}")


def phone(rng: Random) -> Word:
    """A telephone number."""
    figures = f"0{rng.randint(200, 999)} {rng.randint(1_000, 99_999)}"
    return Word(figures, figures)


def town(rng: Random) -> Word:
    """The name of a town, put together from syllables: what is to be copied, and never known by heart."""
    first = rng.choice(("", *words.BEGINNINGS.split())) + rng.choice("aeiouäöü") + rng.choice(words.CODAS.split())
    middle = [rng.choice(words.MIDDLES.split()) for _ in range(rng.randint(0, 1))]
    name = "".join((first, *middle, rng.choice(words.ENDINGS.split()))).capitalize()
    return Word(name, name)


SLOTS: dict[str, Slot] = {
    "who": one_of(words.PEOPLE),
    "other": one_of(words.PEOPLE),
    "what": described(words.THINGS, words.LOOKS),
    "does": one_of(words.VERBS),
    "place": one_of(words.PLACES),
    "where": one_of(words.POSITIONS),
    "when": one_of(words.TIMES),
    "day": one_of(words.DAYS),
    "symptom": one_of(words.SYMPTOMS),
    "diagnosis": one_of(words.DIAGNOSES),
    "drug": one_of(words.DRUGS),
    "remedy": one_of(words.REMEDIES),
    "part": described(words.PARTS, words.SIDES),
    "activity": one_of(words.ACTIVITIES),
    "season": one_of(words.SEASONS),
    "often": one_of(words.FREQUENCIES),
    "town": town,
    "clock": clock,
    "date": date,
    "span": span,
    "phone": phone,
    "age": number(2, 99),
    "price": number(2, 400),
    "size": number(150, 99_999),
    "line": number(1, 999),
}
RULES = (
    Rule("{who:der} {does:now} {what:den}.", "{who:the} {does:now} {what:the}."),
    Rule("{when} {does:now} {who:der} {what:einen}.", "{when} {who:the} {does:now} {what:a}."),
    Rule("{who:der} muss {when} {what:den} {does:bare}.", "{who:the} must {does:bare} {what:the} {when}."),
    Rule("{who:der} hat {what:einen} {does:done}.", "{who:the} has {does:done} {what:a}."),
    Rule("Hat {who:der} {what:den} schon {does:done}?", "Has {who:the} already {does:done} {what:the}?"),
    Rule("{what:der} ist {where} {place:dem}.", "{what:the} is {where} {place:the}."),
    Rule(
        "{who:der} wartet {clock} {where} {place:dem} auf {other:den}.",
        "{who:the} waits for {other:the} {where} {place:the} {clock}.",
    ),
    Rule("Der Bus {line} nach {town} fährt {clock}.", "Bus {line} to {town} leaves {clock}."),
    Rule("{place:der} in {town} öffnet {clock}.", "{place:the} in {town} opens {clock}."),
    Rule("Die Auskunft in {town}: Telefon {phone}.", "The information desk in {town}: phone {phone}."),
    Rule("Bei {symptom} hilft oft {remedy}, sagt {who:der}.", "{remedy} often helps with {symptom}, says {who:the}."),
    Rule("Im {season} haben viele in {town} {symptom}.", "In {season} many in {town} have {symptom}."),
    Rule("Ein Vortrag über {diagnosis} beginnt {clock}.", "A talk on {diagnosis} begins {clock}."),
    Rule("{who:der} liest seit {span} über {diagnosis}.", "{who:the} has been reading about {diagnosis} for {span}."),
    Rule("{drug} kostet in {town} jetzt {price} Euro.", "{drug} now costs {price} euros in {town}."),
    Rule(
        "Das Heft über {diagnosis} liegt {where} {place:dem}.", "The leaflet on {diagnosis} lies {where} {place:the}."
    ),
    Rule("{who:der} spricht mit {other:dem} über {symptom}.", "{who:the} talks to {other:the} about {symptom}."),
    Rule("Bitte {what:den} {when} {does:bare}!", "Please {does:bare} {what:the} {when}!"),
    Rule("Der Termin in {town} ist am {date} {clock}.", "The appointment in {town} is on {date} {clock}."),
    Rule(
        "Zugangscode von {place:dem} in {town}: siehe Seite {line}.",
        "Access code of {place:the} in {town}: see page {line}.",
    ),
    Rule(
        "Wer seit {span} {symptom} hat, soll zum Arzt gehen.",
        "Anyone who has had {symptom} for {span} should see a doctor.",
    ),
    Rule("{what:der} kostet {price} Euro.", "{what:the} costs {price} euros."),
    Rule("Gegen {symptom} nimmt man {often} {drug}.", "{drug} is taken for {symptom} {often}."),
    Rule("{who:der} aus {town} ist {age} Jahre alt.", "{who:the} from {town} is {age} years old."),
    Rule("{town} hat {size} Einwohner.", "{town} has {size} inhabitants."),
    Rule("Von {town} nach {town2} sind es {line} Kilometer.", "It is {line} kilometres from {town} to {town2}."),
    Rule("{when} fährt {who:der} von {town} nach {town2}.", "{when} {who:the} travels from {town} to {town2}."),
    Rule("Vom {date} bis zum {date2} ist {place:der} geschlossen.", "{place:the} is closed from {date} until {date2}."),
    Rule("{place:der} in {town} ist seit {span} geschlossen.", "{place:the} in {town} has been closed for {span}."),
    Rule(
        "Während {who:der} {what:den} {does:now}, wartet {other:der}.",
        "While {who:the} {does:now} {what:the}, {other:the} waits.",
    ),
    Rule(
        "{who:der} weiß, dass {other:der} {what:den} {does:now}.",
        "{who:the} knows that {other:the} {does:now} {what:the}.",
    ),
    Rule("Nach {activity} tut oft {part:der} weh.", "After {activity} {part:the} often hurts."),
)
FRAGMENTS = (
    Rule("{town}", "{town}"),
    Rule("von {town2}", "of {town2}"),
    Rule("nach {town} {town2}", "to {town} {town2}"),
    Rule("am {date}", "on {date}"),
    Rule("{day}", "{day}"),
    Rule("{clock}", "{clock}"),
    Rule("seit {span}", "for {span}"),
    Rule("{often}", "{often}"),
    Rule("{symptom}", "{symptom}"),
    Rule("{diagnosis}", "{diagnosis}"),
    Rule("{drug}", "{drug}"),
    Rule("{drug2} für {who:den}", "{drug2} for {who:the}"),
    Rule("{what:ein}", "{what:a}"),
    Rule("{part}", "{part}"),
    Rule("{where} {place:dem}", "{where} {place:the}"),
    Rule("jetzt {price} Euro", "now {price} euros"),
    Rule("Telefon {phone}", "phone {phone}"),
    Rule("{line}", "{line}"),
    Rule("{age}/{size}", "{age}/{size}"),
    Rule("siehe Seite {age2}", "see page {age2}"),
    Rule("bitte {does:bare}", "please {does:bare}"),
)


def notice(rng: Random) -> Rule:
    """What is pinned to a board: a few fragments in any order."""
    parts = rng.sample(FRAGMENTS, rng.randint(2, 4))
    joints = [rng.choice((", ", ", ", ": ", " - ", " ")) for _ in parts[1:]] + ["."]
    german, english = (
        "".join(part[side] + joint for part, joint in zip(parts, joints, strict=True)) for side in (0, 1)
    )
    return Rule(german, english)
