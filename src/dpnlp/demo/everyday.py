"""Everyday German and English, as anyone may know it: what the small model is pre-trained on.

It speaks of health in general, and never of a person by name.
"""

from random import Random

from dpnlp.demo.inflection import Rule, Slot, Word, described, listed, one_of

PEOPLE = listed("""
    der Arzt = the doctor, die Pflegerin = the nurse, der Apotheker = the pharmacist, die Nachbarin = the neighbour,
    der Lehrer = the teacher, die Schülerin = the pupil, der Fahrer = the driver,
    die Verkäuferin = the shop assistant, der Gast = the guest, die Großmutter = the grandmother,
    der Großvater = the grandfather, das Kind = the child, die Frau = the woman, der Mann = the man,
    die Tochter = the daughter, der Sohn = the son,
    der Bäcker = the baker, die Gärtnerin = the gardener, der Koch = the cook, der Hausmeister = the caretaker,
    die Studentin = the student, der Mieter = the tenant
""")
THINGS = listed("""
    das Buch = the book, die Zeitung = the newspaper, der Schlüssel = the key, die Tasche = the bag,
    der Mantel = the coat, das Fahrrad = the bicycle, die Lampe = the lamp, der Brief = the letter,
    das Paket = the parcel, die Rechnung = the bill, der Stuhl = the chair, der Tisch = the table,
    das Telefon = the phone, die Decke = the blanket, das Kissen = the pillow, der Verband = the bandage,
    die Salbe = the ointment, das Pflaster = the plaster, die Spritze = the syringe, das Rezept = the prescription,
    die Tablette = the tablet, das Thermometer = the thermometer, der Rollstuhl = the wheelchair,
    die Karte = the card, das Formular = the form, der Bericht = the report, die Liste = the list,
    die Flasche = the bottle, das Glas = the glass, der Koffer = the suitcase, das Hemd = the shirt,
    die Jacke = the jacket
""")
LOOKS = listed("""
    neu = new, alt = old, klein = small, groß = large, rot = red, blau = blue, grün = green, schwarz = black,
    weiß = white, schwer = heavy, sauber = clean, billig = cheap, schön = beautiful, gut = good
""")
VERBS = listed("""
    sucht / suchen / gesucht = looks for / look for / looked for,
    bringt / bringen / gebracht = brings / bring / brought, braucht / brauchen / gebraucht = needs / need / needed,
    holt / holen / geholt = fetches / fetch / fetched, kauft / kaufen / gekauft = buys / buy / bought,
    findet / finden / gefunden = finds / find / found, prüft / prüfen / geprüft = checks / check / checked,
    reinigt / reinigen / gereinigt = cleans / clean / cleaned,
    vergisst / vergessen / vergessen = forgets / forget / forgotten,
    bezahlt / bezahlen / bezahlt = pays for / pay for / paid for,
    verkauft / verkaufen / verkauft = sells / sell / sold, zeigt / zeigen / gezeigt = shows / show / shown,
    sieht / sehen / gesehen = sees / see / seen, nimmt / nehmen / genommen = takes / take / taken,
    verliert / verlieren / verloren = loses / lose / lost
""")
PLACES = listed("""
    der Park = the park, die Küche = the kitchen, der Garten = the garden, das Krankenhaus = the hospital,
    die Apotheke = the pharmacy, die Schule = the school, der Bahnhof = the station, das Büro = the office,
    das Wartezimmer = the waiting room, das Museum = the museum, die Kirche = the church, die Praxis = the surgery,
    das Labor = the laboratory, die Bibliothek = the library, der Supermarkt = the supermarket
""")
POSITIONS = listed("""
    in = in, vor = in front of, hinter = behind, neben = next to
""")
DAYS = listed("""
    Montag = Monday, Dienstag = Tuesday, Mittwoch = Wednesday, Donnerstag = Thursday, Freitag = Friday,
    Samstag = Saturday, Sonntag = Sunday
""")
TIMES = listed("""
    heute = today, morgen = tomorrow, am Abend = in the evening, am Wochenende = at the weekend,
    nächste Woche = next week, jeden Tag = every day, nach dem Essen = after the meal, vor der Arbeit = before work
""") + tuple(Word(f"am {day.de}", f"on {day.en}") for day in DAYS)
SYMPTOMS = listed("""
    Kopfschmerzen = headache, Rückenschmerzen = back pain, Bauchschmerzen = stomach pain,
    Brustschmerzen = chest pain, Gelenkschmerzen = joint pain, Zahnschmerzen = toothache, Fieber = fever,
    Husten = coughing, Schwindel = dizziness, Übelkeit = nausea, Durchfall = diarrhoea, Müdigkeit = fatigue,
    Atemnot = shortness of breath, Juckreiz = itching
""")
DIAGNOSES = listed("""
    Pneumonie = pneumonia, Appendizitis = appendicitis, Gastritis = gastritis, Vorhofflimmern = atrial fibrillation,
    Schlaganfall = stroke, Thrombose = thrombosis, Harnwegsinfekt = urinary infection, Herzschwäche = heart failure,
    Migräne = migraine, Hüftfraktur = hip fracture, Gallensteine = gallstones, Nierensteine = kidney stones,
    Asthma = asthma, Anämie = anaemia, Sepsis = sepsis, Gehirnerschütterung = concussion
""")
DRUGS = listed("""
    Ibuprofen = ibuprofen, Metformin = metformin, Ramipril = ramipril, Bisoprolol = bisoprolol,
    Pantoprazol = pantoprazole, Torasemid = torasemide, Amoxicillin = amoxicillin, Heparin = heparin,
    Paracetamol = paracetamol, Simvastatin = simvastatin, Prednisolon = prednisolone, Morphin = morphine
""")
REMEDIES = listed("""
    heißer Tee = hot tea, viel Wasser = plenty of water, frische Luft = fresh air, ein warmes Bad = a warm bath,
    viel Ruhe = plenty of rest, ein Spaziergang = a walk, eine dünne Suppe = a thin soup,
    ein kaltes Tuch = a cold cloth
""")
PARTS = listed("""
    das Knie = the knee, die Schulter = the shoulder, die Hand = the hand, der Fuß = the foot, der Arm = the arm,
    das Bein = the leg, die Hüfte = the hip, der Ellbogen = the elbow, der Finger = the finger, das Ohr = the ear,
    das Auge = the eye
""")
SIDES = listed("""
    recht = right, link = left
""")
ACTIVITIES = listed("""
    dem Sport = sport, der Arbeit = work, dem Schwimmen = swimming, der Gartenarbeit = gardening,
    dem Laufen = running, dem Tanzen = dancing
""")
SEASONS = listed("""
    Frühling = spring, Sommer = summer, Herbst = autumn, Winter = winter
""")
FREQUENCIES = listed("""
    einmal täglich = once a day, zweimal täglich = twice a day, dreimal täglich = three times a day,
    morgens = in the morning, abends = in the evening, vor dem Essen = before meals, nach dem Essen = after meals
""")
MONTHS = listed("""
    Januar = January, Februar = February, März = March, April = April, Mai = May, Juni = June, Juli = July,
    August = August, September = September, Oktober = October, November = November, Dezember = December
""")
COUNTS = listed("""
    zwei = two, drei = three, vier = four, fünf = five, sechs = six, sieben = seven, acht = eight, neun = nine,
    zehn = ten
""")
SPANS = listed("""
    Tagen = days, Wochen = weeks, Monaten = months, Jahren = years, Stunden = hours
""")


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
    day, month = rng.randint(1, 28), rng.choice(MONTHS)
    return Word(f"{day}. {month.de}", f"{day} {month.en}")


def span(rng: Random) -> Word:
    """How long, in the dative: "drei Tagen"."""
    count, unit = rng.choice(COUNTS), rng.choice(SPANS)
    return Word(f"{count.de} {unit.de}", f"{count.en} {unit.en}")


def phone(rng: Random) -> Word:
    """A telephone number."""
    figures = f"0{rng.randint(200, 999)} {rng.randint(1_000, 99_999)}"
    return Word(figures, figures)


def town(rng: Random) -> Word:
    """The name of a town, put together from syllables: what is to be copied, and never known by heart."""
    parts = [
        rng.choice(
            (
                "",
                "B",
                "Br",
                "D",
                "F",
                "G",
                "H",
                "J",
                "K",
                "Kl",
                "L",
                "M",
                "N",
                "P",
                "R",
                "S",
                "Sch",
                "St",
                "T",
                "W",
                "Z",
            )
        )
        + rng.choice("aeiouäöü")
        + rng.choice(("ck", "ff", "l", "ll", "m", "n", "nd", "ng", "r", "rt", "s", "tt", "tz", "x"))
    ]
    for _ in range(rng.randint(0, 1)):
        parts.append(
            rng.choice(("e", "el", "en", "er", "i", "ia", "ig", "in", "li", "man", "mi", "o", "ri", "sa", "ta"))
        )
    parts.append(
        rng.choice(
            ("bach", "berg", "burg", "dorf", "feld", "hausen", "heim", "mann", "stadt", "tal", "a", "e", "ke", "s", "t")
        )
    )
    name = "".join(parts).capitalize()
    return Word(name, name)


SLOTS: dict[str, Slot] = {
    "who": one_of(PEOPLE),
    "other": one_of(PEOPLE),
    "what": described(THINGS, LOOKS),
    "does": one_of(VERBS),
    "place": one_of(PLACES),
    "where": one_of(POSITIONS),
    "when": one_of(TIMES),
    "day": one_of(DAYS),
    "symptom": one_of(SYMPTOMS),
    "diagnosis": one_of(DIAGNOSES),
    "drug": one_of(DRUGS),
    "remedy": one_of(REMEDIES),
    "part": described(PARTS, SIDES),
    "activity": one_of(ACTIVITIES),
    "season": one_of(SEASONS),
    "often": one_of(FREQUENCIES),
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
