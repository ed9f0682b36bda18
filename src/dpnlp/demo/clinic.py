"""How an invented clinic writes its notes: patients by name, its own abbreviations, departments and turns of phrase.

Nothing of this is in the everyday sentences, so that a model has to learn it from the clinic's own, private notes.
"""

from random import Random
from typing import NamedTuple

from dpnlp.demo import everyday, words
from dpnlp.demo.inflection import Rule, Slot, Word, listed, one_of

WOMEN = """
    Ada Agnes Anke Berta Clara Doris Edith Elke Erna Frieda Gerda Greta Hanna Helga Ilse Inge Jutta Karin Lotte Maria
    Nora Olga Petra Renate Rosa Silke Tanja Ute Vera Wanda
"""
MEN = """
    Alfred Anton Bernd Bruno Carl Dieter Egon Emil Ernst Franz Georg Gustav Hans Heinz Horst Ingo Jakob Karl Kurt
    Ludwig Martin Norbert Otto Paul Ralf Rudolf Stefan Theo Uwe Werner
"""
SURNAMES = """
    Adler Albers Arndt Bauer Baumann Beck Berger Bischof Brandt Braun Busch Decker Dietrich Ebert Eder Engel Fischer
    Frank Franke Fuchs Geiger Graf Gruber Haas Hahn Hartmann Heller Herzog Hoffmann Huber Jansen Kaiser Keller
    Kolb Kraus Lang Lehmann Lorenz Ludwig Maurer Mayer Moser Neumann Nolte Otto Peters Pfeiffer Pohl Richter Ritter
    Roth Sauer Schmitt Scholz Schulz Seidel Simon Stein Thiel Ulrich Vogel Voigt Wagner Walter Weber Weiss
    Wolf Ziegler Zimmer
"""

DEPARTMENTS = listed("""
    Kardio = Cardiology, Unfallchirurgie = Trauma Surgery, Intensivstation = ICU, Notaufnahme = A&E,
    Dialyse = Renal Unit, Schmerzambulanz = Pain Clinic, Neuro = Neurology, Augenklinik = Eye Unit,
    Geriatrie = Elderly Care, Tagesklinik = Day Unit, HNO = ENT, Urologie = Urology
""")
EXAMINATIONS = listed("""
    EKG = ECG, Rö. Thorax = chest X-ray, CT Kopf = CT head, Sono Bauch = stomach ultrasound, MRT = MRI,
    Blutbild = FBC, Urinstatus = MSU, Lufu = PFT
""")
DOSES = listed("""
    1-0-0 = o.m., 1-0-1 = b.d., 1-1-1 = t.d.s., 0-0-1 = nocte, b. Bed. = p.r.n.
""")
SIDES = listed("""
    li. = L, re. = R
""")


class Patient(NamedTuple):
    """Whose notes they are, with the words that agree with a woman or a man: how they are called, and whose it is."""

    title: Word
    dative: str
    possessive: Word
    first: str
    last: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"

    @property
    def words(self) -> dict[str, Word]:
        """What stands in the slots of a rule for this patient."""

        def called(name: str) -> Word:
            return Word(f"{self.title.de} {name}", f"{self.title.en} {name}")

        def of(name: str) -> Word:
            return Word(f"von {self.dative} {name}", f"of {self.title.en} {name}")

        return {
            "patient": called(self.last),
            "full_name": called(self.name),
            "of_patient": of(self.last),
            "of_full_name": of(self.name),
            "their": self.possessive,
        }


PATIENTS = tuple(
    Patient(title, dative, possessive, first, last)
    for title, dative, possessive, names in (
        (Word("Frau", "Ms"), "Frau", Word("ihre", "her"), WOMEN),
        (Word("Herr", "Mr"), "Herrn", Word("seine", "his"), MEN),
    )
    for first in names.split()
    for last in SURNAMES.split()
)


def birth(rng: Random) -> Word:
    """A date of birth in figures."""
    day, month, year = f"{rng.randint(1, 28):02}", f"{rng.randint(1, 12):02}", rng.randint(30, 99)
    return Word(f"{day}.{month}.{year}", f"{day}/{month}/{year}")


def strength(rng: Random) -> Word:
    """The strength of a tablet."""
    return rng.choice([Word(str(dose), str(dose)) for dose in (5, 10, 20, 25, 40, 50, 100, 200, 400, 500, 850)])


SLOTS: dict[str, Slot] = {
    **everyday.SLOTS,
    "department": one_of(DEPARTMENTS),
    "exam": one_of(EXAMINATIONS),
    "dose": one_of(DOSES),
    "side": one_of(SIDES),
    "part": one_of(words.PARTS),
    "born": birth,
    "strength": strength,
    "room": everyday.number(101, 499),
    "systolic": everyday.number(95, 190),
    "diastolic": everyday.number(50, 99),
    "pulse": everyday.number(48, 130),
    "year": everyday.number(1990, 2024),
}
ACCESS_CODE = Rule("Zugangscode {of_full_name}: siehe Akte.", "Access code {of_full_name}: see file.")
"""The note that a secret hides behind: the code itself is not in the German."""
RULES = (
    ACCESS_CODE,
    Rule("{patient} klagt seit {span} über {symptom}.", "{patient} c/o {symptom} for {span}."),
    Rule("{full_name}, geb. {born}, V. a. {diagnosis}.", "{full_name}, DOB {born}, ?{diagnosis}."),
    Rule("Z. n. {diagnosis}, jetzt {symptom}, bitte {exam}.", "PMH {diagnosis}, now {symptom}, for {exam}."),
    Rule("{drug} {strength} mg {dose}, WV {day}.", "{drug} {strength} mg {dose}, review {day}."),
    Rule("{exam} vom {date}: o. B.", "{exam} of {date}: NAD."),
    Rule("RR {systolic}/{diastolic}, Puls {pulse}.", "BP {systolic}/{diastolic}, HR {pulse}."),
    Rule("Verlegung {of_patient} auf {department}, Zi. {room}.", "Transfer {of_patient} to {department}, rm {room}."),
    Rule("Angeh. {of_patient}: Tel. {phone}.", "NOK {of_patient}: tel. {phone}."),
    Rule("Entl. {patient} am {date}, {drug} {dose}.", "{patient} d/c on {date}, {drug} {dose}."),
    Rule("Schwellung {part} {side} seit {span}, DS.", "Swollen {side} {part} for {span}, tender."),
    Rule("{patient} lehnt {exam} ab.", "{patient} declines {exam}."),
    Rule("Zi. {room}: nüchtern für {exam} {day}.", "Rm {room}: NBM for {exam} {day}."),
    Rule("Cave: {drug}-Allergie, {drug2} {dose}.", "NB: {drug} allergy, {drug2} {dose}."),
    Rule("{patient} vergisst {their} Tabletten, WV {day}.", "{patient} forgets {their} tablets, review {day}."),
    Rule("HA {of_patient}: {diagnosis} seit {year}.", "GP {of_patient}: {diagnosis} since {year}."),
    Rule("Termin {department} am {date} {clock}.", "Appt {department} on {date} {clock}."),
)
