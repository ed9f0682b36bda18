"""Words that anyone knows, in German and in English; the clinic has others of its own."""

from dpnlp.demo.inflection import Word, listed

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
BEGINNINGS = "B Br D F G H J K Kl L M N P R S Sch St T W Z"
CODAS = "ck ff l ll m n nd ng r rt s tt tz x"
MIDDLES = "e el en er i ia ig in li man mi o ri sa ta"
ENDINGS = "bach berg burg dorf feld hausen heim mann stadt tal a e ke s t"
"""The syllables of which towns are made: the letters before the first vowel, those after it, and what follows."""
