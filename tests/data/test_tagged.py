"""Sentences survive every form that they can be written in, and a bad line is named in one sentence."""

import json

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data.records import divided, labels_of
from dpnlp.data.tagged import CONLLU, Columns, Tagged, as_iob2, tagged

SENTENCES = [
    Tagged(("EU", "rejects", "German", "call"), ("B-ORG", "O", "B-MISC", "O"), None),
    Tagged(("Peter", "Blackburn"), ("B-PER", "I-PER"), None),
    Tagged(("#", "BRUSSELS"), ("O", "B-LOC"), None),
]
COLUMNS = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER


-DOCSTART- -X- O O

# NN B-NP O
BRUSSELS NNP I-NP B-LOC"""
DOCUMENTS = ["1", "1", "2"]


def refused(opened):
    with pytest.raises(BadInput) as refusal:
        list(opened())
    return str(refusal.value)


@pytest.mark.parametrize("name", ["eng.train", "a.conll", "a.conll.gz", "a.txt", "a.tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("between", [" ", "\t", "  "])
def test_columns_of_conll(write, name, end, between):
    path = write(name, COLUMNS.replace("\n", end).replace(" ", between))
    if between == "  ":  # Several spaces are one; several tabs have empty columns between them.
        assert list(tagged(path)) == SENTENCES
        return
    opened = tagged(path, Columns(owner="document"))
    for _ in range(2):
        assert list(opened) == [sentence._replace(owner=n) for sentence, n in zip(SENTENCES, DOCUMENTS, strict=True)]
    assert list(tagged(path)) == SENTENCES
    assert [path.name for path in opened.files] == [name]
    assert labels_of(opened) == ("B-LOC", "B-MISC", "B-ORG", "B-PER", "I-PER", "O")


def test_the_columns_of_words_and_tags_can_be_chosen(write):
    path = write("a.conll", COLUMNS)
    assert next(iter(tagged(path, Columns(tags="1")))).tags == ("NNP", "VBZ", "JJ", "NN")
    assert next(iter(tagged(path, Columns(words="-1", tags="-2")))).words == SENTENCES[0].tags
    assert tagged(path).reading != tagged(path, Columns(tags="1")).reading


def test_a_document_need_not_be_ended_by_a_blank_line(write):
    path = write("a.conll", "a\tX\n-DOCSTART-\tO\nb\tY\n\t\nc\tX\n")
    assert [sentence.words for sentence in tagged(path)] == [("a",), ("b",), ("c",)]
    assert refused(lambda: tagged(path, Columns(owner="document"))) == (
        f"{path}, line 1: the owner (document) is empty; every sentence must have an owner, if any has one."
    )


UNIVERSAL = """\
# newdoc id = weblog-1
# sent_id = 1
1-2	Don't	_	_	_	_	_	_	_	_
1	Do	do	AUX	VBP	_	0	root	_	_
2	n't	not	PART	RB	_	1	advmod	_	_
2.1	go	go	VERB	VB	_	_	_	1:conj	_

1	#	#	SYM	NN	_	0	root	_	_

# newdoc
# text = 10 000
1	10 000	10000	NUM	CD	_	0	root	_	_
"""


def test_conllu_has_words_as_they_are_parsed(write):
    path = write("a.conllu.gz", UNIVERSAL)
    assert list(tagged(path, Columns(owner="document"))) == [
        (("Do", "n't"), ("AUX", "PART"), "weblog-1"),
        (("#",), ("SYM",), "weblog-1"),
        (("10 000",), ("NUM",), "2"),
    ]
    assert [sentence.tags for sentence in tagged(path, Columns("LEMMA", "XPOS"))] == [("VBP", "RB"), ("NN",), ("CD",)]
    assert next(iter(tagged(path, Columns("LEMMA", "XPOS")))).words == ("do", "not")


def test_two_aligned_files_are_words_and_their_tags(write):
    files = write("seq.in", "fly to new york \nhow much\n"), write("seq.out", "O O B-city I-city\nO O\n")
    assert [sentence.tags for sentence in tagged(files)] == [("O", "O", "B-city", "I-city"), ("O", "O")]
    write("seq.out", "O O B-city I-city\nO\n")
    expected = f"{files[0]}, line 2: the sentence has 2 words and 1 tags; give each word one tag."
    assert refused(lambda: tagged(files)) == expected
    write("seq.out", "O O B-city I-city\n \n")
    expected = f"{files[1]}, line 2: the tags (tags) are none; give the sentence at least one, or take it out."
    assert refused(lambda: tagged(files)) == expected


def test_json_lines_have_lists_or_texts(write):
    rows = [{"tokens": list(s.words), "ner": list(s.tags), "who": "x"} for s in SENTENCES[:2]]
    rows.append({"tokens": " ".join(SENTENCES[2].words), "ner": " ".join(SENTENCES[2].tags), "who": "x"})
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert list(tagged(path, Columns("tokens", "ner", "who"))) == [s._replace(owner="x") for s in SENTENCES]


def test_numbers_take_the_names_that_are_given(write):
    path = write("a.jsonl", '{"words": ["a", "b"], "tags": [1, 0]}')
    assert next(iter(tagged(path))).tags == ("1", "0")
    assert next(iter(tagged(path, names=["O", "B-X"]))).tags == ("B-X", "O")


def test_a_list_of_class_labels_of_datasets_has_its_names(tmp_path):
    names = ["O", "B-PER", "I-PER"]
    tags = datasets.Sequence(datasets.ClassLabel(names=names))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    part = datasets.Dataset.from_dict({"tokens": [["Ann", "Lee", "ran"]], "ner_tags": [[1, 2, 0]]}, features=features)
    datasets.DatasetDict(train=part, test=part).save_to_disk(tmp_path / "saved")
    opened = tagged(tmp_path / "saved", Columns("tokens", "ner_tags"), "test")
    assert list(opened) == [(("Ann", "Lee", "ran"), ("B-PER", "I-PER", "O"), None)]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.conll", "\n\n", ": it has no sentences; fill it, or give another file."),
        (
            "a.conll",
            "a O\n\nb O\nc\n",
            ", line 4: it has 1 column, too few for a word in column 0 and a tag in column -1; correct the line, or "
            "choose other columns.",
        ),
        ("a.conll", "a\tO\n \tO\n", ", line 1: the words (words) are to be texts, but number 2 is blank; correct it."),
        ("a.conll", "a\t\nb\tO\n", ", line 1: the tags (tags) cannot be empty; correct the sentence."),
        ("a.conll", b"a O\n\xff O\n", ", line 2: the byte 0xff is not UTF-8; convert the file to UTF-8."),
        ("a.conllu", "1\ta\ta\n", ", line 1: it has 3 columns with tabs between, and CoNLL-U has 10; correct it."),
        (
            "a.conllu",
            UNIVERSAL + "\n# newpar\n# text = nothing\n\n",
            ", line 14: the words (words) are none; give the sentence at least one, or take it out.",
        ),
        (
            "a.conllu",
            UNIVERSAL + "a\tb\tc\tX\tY\t_\t0\troot\t_\t_\n",
            ", line 13: its ID is 'a', and must be a number such as 1, 1-2 or 1.1.",
        ),
        (
            "a.conllu",
            UNIVERSAL + "2\tb\tc\t_\tY\t_\t0\troot\t_\t_\n",
            ", line 13: it has no UPOS, but _; tag the word, or take another column.",
        ),
        (
            "a.jsonl",
            '{"words": ["a"], "tags": ["O"]}\n{"words": ["a", "b"], "tags": ["O"]}',
            ", line 2: the sentence has 2 words and 1 tags; give each word one tag.",
        ),
        (
            "a.jsonl",
            '{"words": [], "tags": []}',
            ", line 1: the words (words) are none; give the sentence at least one, or take it out.",
        ),
        (
            "a.jsonl",
            '{"words": ["a", 3], "tags": ["O", "O"]}',
            ", line 1: the words (words) are to be texts, but number 2 is a number; correct it.",
        ),
        (
            "a.jsonl",
            '{"words": 3, "tags": []}',
            ", line 1: the words (words) are a number, and must be a list, or a text with spaces between.",
        ),
        (
            "a.jsonl",
            '{"words": ["a"], "tags": [["O"]]}',
            ", line 1: the tags (tags) cannot be a list, but a text or a whole number.",
        ),
        (
            "a.jsonl",
            '{"words": ["\\ud83d"], "tags": ["O"]}',
            ", line 1: the words (words) holds half of a surrogate pair; write the whole character.",
        ),
        ("a.jsonl", '{"words": ["a"], "tag": ["O"]}', ", line 1: the tags (tags) is missing; there are tag, words."),
    ],
)
def test_what_is_wrong_with_a_sentence_is_one_sentence(write, name, content, sentence):
    path = write(name, content)
    assert refused(lambda: tagged(path)) == f"{path}{sentence}"


def test_a_column_that_is_not_there_is_refused(write):
    path = write("a.conll", "a B O\n")
    for columns in (Columns(tags="3"), Columns(words="-4"), Columns("2", "-1")):
        assert refused(lambda columns=columns: tagged(path, columns)).startswith(
            f"{path}, line 1: it has 3 columns, too few for a word in column {columns.words or 0} and a tag"
        )
    with pytest.raises(BadInput, match=r"^tags = ner: a column of such a file must be a number, 0 the first"):
        tagged(path, Columns(tags="ner"))
    with pytest.raises(BadInput, match=r"^tags = POS: a column of CoNLL-U must be one of ID, FORM, "):
        tagged(write("a.conllu", UNIVERSAL), Columns(tags="POS"))
    assert "the owner (doc) is missing; there are document, " in refused(lambda: tagged(path, Columns(owner="doc")))


@pytest.mark.parametrize("name", ["a.conll", "a.conllu", "a.jsonl", "a.tsv", "a.txt.gz"])
def test_a_missing_file_is_not_looked_for_on_the_hub(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=rf"^{name}: there is no such file; check the path\.$"):
        tagged(name)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
        ("I-PER I-LOC I-LOC", "B-PER B-LOC I-LOC"),
        ("B-PER I-LOC O", "B-PER B-LOC O"),
        ("O O", "O O"),
    ],
)
def test_iob1_becomes_iob2(write, tags, expected):
    assert as_iob2(tags.split()) == tuple(expected.split())
    path = write("a.conll", "".join(f"w {tag}\n" for tag in tags.split()))
    assert next(iter(tagged(path, iob2=True))).tags == tuple(expected.split())
    assert next(iter(tagged(path))).tags == tuple(tags.split())
    assert tagged(path).reading != tagged(path, iob2=True).reading


@st.composite
def entities(draw):
    """A sentence as spans of entities, which IOB1 and IOB2 write in their own ways."""
    spans = draw(st.lists(st.tuples(st.sampled_from(["O", "A", "B"]), st.integers(1, 3)), min_size=1, max_size=6))
    one, two, last = [], [], "O"
    for kind, length in spans:
        if kind == "O":
            one, two, last = [*one, *["O"] * length], [*two, *["O"] * length], "O"
            continue
        one += ["B-" + kind if last == kind else "I-" + kind, *["I-" + kind] * (length - 1)]
        two += ["B-" + kind, *["I-" + kind] * (length - 1)]
        last = kind
    return one, two


@given(entities())
def test_iob2_has_the_entities_of_iob1_and_stays_as_it_is(both):
    one, two = both
    assert as_iob2(one) == tuple(two)
    assert as_iob2(two) == tuple(two)


def words(*forbidden):
    """Words without what ends a line or a column."""
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\n\r" + "".join(forbidden))
    return st.text(letters, min_size=1, max_size=6).filter(str.strip)


def written(word):
    pair = st.tuples(word.filter(lambda text: text != "-DOCSTART-"), st.sampled_from(["O", "B-X", "I-X", "_X"]))
    return st.lists(st.tuples(st.integers(1, 3), st.lists(pair, min_size=1, max_size=4)), min_size=1, max_size=5)


@given(st.data(), st.sampled_from(["\t", " "]), st.booleans())
def test_what_is_written_in_columns_is_read_again(tmp_path_factory, data, between, documents):
    """With tabs between, a word may have spaces in it."""
    sentences = data.draw(written(words("\t") if between == "\t" else words("\t", " ")))
    text, expected, last = "", [], 0
    for number, pairs in sorted(sentences, key=lambda sentence: sentence[0]):
        if documents:
            text += f"-DOCSTART-{between}O\n\n" * (number - last)
            last = number
        text += "".join(f"{word}{between}x{between}{tag}\n" for word, tag in pairs) + "\n"
        expected.append((*zip(*pairs, strict=True), str(number) if documents else None))
    path = tmp_path_factory.mktemp("conll") / "a.conll"
    path.write_bytes(text.encode())
    assert list(tagged(path, Columns(owner="document" if documents else None))) == expected


@given(written(words("\t")))
def test_what_is_written_as_conllu_is_read_again(tmp_path_factory, sentences):
    text, expected, last = "", [], 0
    for number, pairs in sorted(sentences, key=lambda sentence: sentence[0]):
        if number != last:
            text += f"# newdoc id = d{number}\n"
            last = number
        for place, (word, tag) in enumerate(pairs, 1):
            cells = dict.fromkeys(CONLLU, "_") | {"ID": str(place), "FORM": word, "UPOS": tag}
            text += "\t".join({**cells, "ID": f"{place}-{place + 1}"}.values()) + "\n"
            text += "\t".join(cells.values()) + "\n"
            text += "\t".join({**cells, "ID": f"{place}.1"}.values()) + "\n"
        text += "\n"
        expected.append((*zip(*pairs, strict=True), f"d{number}"))
    path = tmp_path_factory.mktemp("conllu") / "a.conllu"
    path.write_bytes(text.encode())
    assert list(tagged(path, Columns(owner="document"))) == expected


def test_a_share_is_held_out_by_document(write):
    path = write("a.conll", "".join(f"-DOCSTART- O\n\nw{n} O\n\nv{n} O\n\n" for n in range(100)))
    everything = tagged(path, Columns(owner="document"))
    most, few = map(list, divided(everything, 0.3))
    assert sorted(most + few) == sorted(everything)
    assert not {sentence.owner for sentence in most} & {sentence.owner for sentence in few}
    assert 30 < len(few) < 90
