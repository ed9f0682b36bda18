"""What a run may take for a text is found in its file by whoever knows nothing of it (law 15)."""

import json

import numpy as np
import pytest

from dpnlp.data import labelled, plain, questions, tagged
from dpnlp.data.corpora import named
from dpnlp.data.identity import Identity
from dpnlp.data.ledgers import DataSet
from dpnlp.data.strings import files_of, strings

TEXTS = [f"the patient number {n}\ncame home on a monday\nand left" for n in range(4)]
SENTENCES = [["the", "patient", f"{n}th", "came", "home", "on", "monday"] for n in range(4)]
SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "home",
            "paragraphs": [
                {
                    "context": text,
                    "qas": [{"id": text[19], "question": f"Who came home, {text[19]}?", "is_impossible": True}],
                }
                for text in TEXTS
            ],
        }
    ],
}


def words(row):
    """A word a line, as `row` writes it, and blank lines."""
    return "\n".join("".join(f"{row(n, word)}\n" for n, word in enumerate(some, 1)) for some in SENTENCES)


def universal(n, word):
    return f"{n}\t{word}\tlemma-{word}\tNOUN\t_\t_\t0\t_\t_\t_"


def ranged(n, word):
    return f"1-2\tthepatient\t_\t_\t_\t_\t_\t_\t_\t_\n{universal(n, word)}" if n == 1 else universal(n, word)


def columns(words, tags="-1"):
    return tagged.Columns(words, tags)


FILES = {
    "pretty.json": (json.dumps(SQUAD, indent=2), questions.questions),
    "plain.json": (json.dumps(SQUAD), questions.questions),
    "words.conll": (words(lambda n, word: f"{word} {'OB'[n % 2]}"), tagged.tagged),
    "words.tsv": (words(lambda n, word: f"{word}\t{'OB'[n % 2]}"), tagged.tagged),
    "words.txt": (words(lambda n, word: f"{word}\t{'OB'[n % 2]}"), tagged.tagged),
    "second.conll": (words(lambda n, word: f"{n} {word} O"), lambda path: tagged.tagged(path, columns("1"))),
    "last.conll": (words(lambda n, word: f"O {'x ' * n}{word}"), lambda path: tagged.tagged(path, columns("-1", "0"))),
    "began.conll": (f"-DOCSTART- O\n{words(lambda n, word: f'{word} O')}", tagged.tagged),
    "ranges.conllu": (words(ranged), tagged.tagged),
    "lemmas.conllu": (words(universal), lambda path: tagged.tagged(path, columns("LEMMA", "UPOS"))),
    "rows.csv": ("text\n" + "".join(f'"{text}"\n' for text in TEXTS), plain.plain),
    "lines.txt": ("\n".join(TEXTS), plain.plain),
    "play.txt": (
        "\n".join(f"PATIENT {n}:\n{text}\n" for n, text in enumerate(TEXTS)),
        lambda path: named("plays", path, kind="plain").train,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_all_that_a_run_reads_is_among_the_strings_of_the_file(write, name):
    content, read = FILES[name]
    path = write(name, content)
    seen = Identity.of_owner().seen(read(path)).texts
    assert len(seen) >= 4
    assert len(DataSet.at(path).texts.common(seen)) == len(seen)


def test_a_text_a_file_in_folders_of_labels_is_one_text(write):
    for n, text in enumerate(TEXTS):
        path = write(f"films/{'pos' if n % 2 else 'neg'}/{n}.txt", f"a film\n\n{text}")
    folder = path.parent.parent
    seen = Identity.of_owner().seen(labelled.labelled(folder)).texts
    assert len(DataSet.at(folder).texts.common(seen)) == len(seen) == 4


def test_what_cannot_be_read_hides_nothing_of_the_rest(write):
    lines = "".join(f"{json.dumps({'text': text})}\n" for text in TEXTS)
    assert {*TEXTS} <= {*strings(write("broken.jsonl", f"no JSON\n{lines}"))}
    assert TEXTS[0] in strings(write("titled.csv", f'# exported today\n"{TEXTS[0]}",1\n'))
    assert list(strings(write("numbers.npz", np.full(300, 255, np.uint8).tobytes()))) == []


def test_folders_that_are_linked_into_a_folder_are_in_it_and_a_circle_ends(write):
    far = write("far/secret.txt", "a")
    near = write("near/other.txt", "b")
    (near.parent / "link").symlink_to(far.parent)
    (near.parent / "circle").symlink_to(near.parent.parent)
    assert {file.resolve() for file in files_of(near.parent)} == {near, far}
