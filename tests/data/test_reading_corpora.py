"""Corpora of reading tasks have the records and labels that their authors publish, and say what is missing."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import datasets
import pytest

from dpnlp.checks import BadInput
from dpnlp.data.corpora import CORPORA, KINDS, named
from dpnlp.data.corpora.labels import UPOS
from dpnlp.data.records import labels_of

DATA = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the published files, which are not part of the project")


def of(name, folder, **given):
    return named(name, folder, kind=CORPORA[name].kind, **given)


def sizes(corpus):
    splits = corpus.train, corpus.validation, corpus.test
    return [None if split is None else sum(1 for _ in split) for split in splits]


@real
@pytest.mark.parametrize(
    ("name", "folder", "expected", "labels"),
    [
        ("imdb", "imdb", [25_000, None, 25_000], 2),
        ("sst2", "sst2", [67_349, 872, 1821], 2),
        ("wnut17", "wnut17", [3394, 1009, 1287], 13),
        ("ud_ewt", "ud_ewt", [12_544, 2001, 2077], 17),
        ("ud_gum", "ud_gum", [3753, 784, 890], 17),
        ("atis", "atis_snips/atis", [4478, 500, 893], 26),
        ("snips", "atis_snips/snips", [13_084, 700, 700], 7),
        ("atis_slots", "atis_snips/atis", [4478, 500, 893], 127),
        ("snips_slots", "atis_snips/snips", [13_084, 700, 700], 72),
    ],
)
def test_a_corpus_has_the_records_and_the_labels_that_are_published(name, folder, expected, labels):
    corpus = of(name, DATA / folder)
    assert sizes(corpus) == expected
    splits = [split for split in (corpus.train, corpus.validation, corpus.test) if split]
    assert tuple(sorted({label for split in splits for label in labels_of(split)})) == corpus.labels
    assert len(corpus.labels) == labels
    assert corpus.kind == CORPORA[name].kind


@real
def test_imdb_is_balanced():
    counts = Counter(review.label for review in of("imdb", DATA / "imdb").test)
    assert counts == {"neg": 12_500, "pos": 12_500}


@real
def test_snli_has_the_pairs_at_hand_and_asks_for_the_rest():
    corpus = of("snli", DATA / "snli")
    assert [sum(1 for _ in corpus.train), sum(1 for _ in corpus.test)] == [99_890, 9824]
    assert labels_of(corpus.test) == corpus.labels == ("contradiction", "entailment", "neutral")
    first = next(iter(corpus.train))
    assert first.text == "A person on a horse jumps over a broken down airplane."
    assert (first.pair, first.label) == ("A person is training his horse for a competition.", "neutral")
    with pytest.raises(BadInput, match=r"put snli_1\.0_dev\.jsonl of SNLI into .*snli\.$"):
        list(corpus.validation)


@real
@pytest.mark.parametrize(("name", "file", "documents"), [("ud_ewt", "en_ewt", 540), ("ud_gum", "en_gum", 81)])
def test_a_treebank_has_its_words_and_documents(name, file, documents):
    """The oracle reads the lines with one regular expression."""
    with gzip.open(DATA / name / f"{file}-ud-train.conllu.gz", "rt", encoding="utf-8", newline="\n") as lines:
        published = re.findall(r"^[0-9]+\t([^\t]*)\t[^\t]*\t([^\t]*)", lines.read(), re.MULTILINE)
    train = list(of(name, DATA / name).train)
    found = [pair for sentence in train for pair in zip(sentence.words, sentence.tags, strict=True)]
    assert found == published
    assert len({sentence.owner for sentence in train}) == documents
    assert set(UPOS) == {tag for _, tag in published}


@real
def test_squad_has_its_development_set_as_test_set():
    corpus = of("squad2", DATA / "squad2")
    assert corpus.validation is None
    questions = list(corpus.test)
    assert [len(questions), sum(not question.answers for question in questions)] == [6078, 3168]
    assert questions[0].owner == "Normans"
    assert len({question.owner for question in questions}) == 16
    assert len({question.id for question in questions}) == 6078
    assert all(
        question.context[answer.start : answer.start + len(answer.text)] == answer.text
        for question in questions
        for answer in question.answers
    )
    with pytest.raises(BadInput, match=r"put train-v2\.0\.json of SQuAD 2\.0 into .*squad2\.$"):
        list(corpus.train)


def test_imdb_is_read_from_folders_too(write, tmp_path):
    for place, text in {"neg/0_1": "Bad.", "pos/0_9": "Good.", "unsup/0_0": "Hm."}.items():
        write(f"train/{place}.txt", text)
    corpus = of("imdb", tmp_path)
    assert [(review.text, review.label) for review in corpus.train] == [("Bad.", "neg"), ("Good.", "pos")]
    assert corpus.validation is None
    with pytest.raises(BadInput) as refusal:
        list(corpus.test)
    assert str(refusal.value) == (
        f"{tmp_path}/test/neg: there is no such file; put test/neg and test/pos of IMDb (aclImdb) into {tmp_path}."
    )


def test_snli_leaves_out_what_annotators_did_not_agree_on(write, tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "gold_label": label} for label in ("neutral", "-", "entailment")]
    write("snli_1.0_train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    train = of("snli", tmp_path).train
    assert [pair.label for pair in train] == ["neutral", "entailment"]
    assert train.left_out() == 1


@pytest.mark.parametrize("files", [("eng.train", "eng.testa", "eng.testb"), ("train.txt", "valid.txt", "test.txt")])
def test_conll_2003_is_made_iob2(write, tmp_path, files):
    for number, file in enumerate(files):
        write(file, f"-DOCSTART- -X- O O\n\nU.N. NNP I-NP I-ORG\nBonn{number} NNP I-NP I-LOC\nwon VBD I-VP O\n\n")
    corpus = of("conll2003", tmp_path)
    assert sizes(corpus) == [1, 1, 1]
    assert list(corpus.test) == [(("U.N.", "Bonn2", "won"), ("B-ORG", "B-LOC", "O"), "1")]
    assert corpus.labels == ("B-LOC", "B-MISC", "B-ORG", "B-PER", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O")


def saved(folder, rows, features, splits):
    part = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    datasets.DatasetDict(dict.fromkeys(splits, part)).save_to_disk(folder)
    return folder


@pytest.fixture
def hub(monkeypatch):
    """A hub that has what is in a folder, and remembers what it was asked for."""

    def answers(folder):
        asked = []

        def load_dataset(name, configuration, split):
            asked.append((name, configuration, split))
            return datasets.load_from_disk(folder)[split]

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return asked

    return answers


def test_wikiann_comes_from_the_hub_or_a_folder(tmp_path, hub):
    names = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]
    features = {
        "tokens": datasets.List(datasets.Value("string")),
        "ner_tags": datasets.List(datasets.ClassLabel(names=names)),
    }
    rows = [{"tokens": ["Bonn", "won"], "ner_tags": [5, 0]}]
    folder = saved(tmp_path / "wikiann", rows, features, ["train", "validation", "test"])
    asked = hub(folder)
    expected = [(("Bonn", "won"), ("B-LOC", "O"), None)]
    assert list(of("wikiann", None).test) == expected
    assert asked == [("unimelb-nlp/wikiann", "en", split) for split in ("train", "validation", "test")]
    corpus = of("wikiann", folder)
    assert list(corpus.validation) == expected
    assert set(corpus.labels) == set(names)
    with pytest.raises(BadInput, match=r"^folder = .*: it must be a folder of WikiANN that `datasets` saved; leave it"):
        of("wikiann", tmp_path)


def test_snli_comes_from_the_hub_too(tmp_path, hub):
    kinds = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string"), "label": kinds}
    rows = [{"premise": "a", "hypothesis": "b", "label": label} for label in (2, -1, 0)]
    asked = hub(saved(tmp_path / "snli", rows, features, ["train", "validation", "test"]))
    corpus = of("snli", None)
    assert [name for name, *_ in asked] == ["stanfordnlp/snli"] * 3
    assert [pair.label for pair in corpus.validation] == ["contradiction", "entailment"]


def test_squad_comes_from_the_hub_too(tmp_path, hub):
    answers = {"text": datasets.List(datasets.Value("string")), "answer_start": datasets.List(datasets.Value("int32"))}
    texts = {name: datasets.Value("string") for name in ("id", "title", "context", "question")}
    row = dict.fromkeys(texts, "x") | {"answers": {"text": [], "answer_start": []}}
    asked = hub(saved(tmp_path / "squad", [row], texts | {"answers": answers}, ["train", "validation"]))
    assert list(of("squad2", None).test) == [("x", "x", "x", (), "x")]
    assert asked == [("rajpurkar/squad_v2", None, "train"), ("rajpurkar/squad_v2", None, "validation")]


@pytest.mark.parametrize(
    ("name", "split", "files"),
    [
        ("sst2", "test", "test-labeled.tsv"),
        ("snli", "train", "snli_1.0_train.jsonl"),
        ("atis", "train", "train/seq.in and train/label"),
        ("snips_slots", "validation", "valid/seq.in and valid/seq.out"),
        ("conll2003", "validation", "eng.testa"),
        ("wnut17", "test", "emerging.test.annotated"),
        ("ud_ewt", "validation", "en_ewt-ud-dev.conllu"),
        ("ud_gum", "test", "en_gum-ud-test.conllu"),
        ("squad2", "test", "dev-v2.0.json"),
    ],
)
def test_a_missing_file_is_asked_for_when_its_split_is_read(tmp_path, name, split, files):
    stream = getattr(of(name, tmp_path), split)
    for read in (list, lambda stream: stream.files):
        with pytest.raises(BadInput) as refusal:
            read(stream)
        first = files.split(" and ")[0]
        assert str(refusal.value) == (
            f"{tmp_path}/{first}: there is no such file; put {files} of {CORPORA[name].title} into {tmp_path}."
        )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"name": "atis", "kind": "tagged"},
            "corpus = atis: it has texts with a label, and here sentences with a tag for each word are needed; "
            "choose one of atis_slots, ",
        ),
        (
            {"name": "imdb"},
            "corpus = imdb: it has texts with a label, and here texts with their translation are needed; choose one",
        ),
        (
            {"name": "multi30k", "kind": "questions"},
            "corpus = multi30k: it has texts with their translation, and here questions about texts are needed; "
            "choose one of squad2.",
        ),
        ({"name": "squad", "kind": "questions"}, "corpus = squad: it must be one of squad2."),
        ({"name": "imdb", "kind": "label"}, "kind = label: it must be one of labelled, "),
        (
            {"name": "imdb", "kind": "labelled", "source": "de"},
            "source = de: there is none in this corpus; leave it out.",
        ),
        ({"name": "imdb", "kind": "labelled", "test": "x"}, "test = x: there is none in this corpus; leave it out."),
        ({"name": "imdb", "kind": "labelled", "owner": "x"}, "owner = x: there is none in this corpus; leave it out."),
        ({"name": "ud_ewt", "kind": "tagged", "owner": "x"}, "owner = x: it must be one of document."),
        (
            {"name": "sst2", "kind": "labelled", "folder": "nowhere"},
            "folder = nowhere: it must be a folder with the files of SST-2.",
        ),
        (
            {"name": "conll2003", "kind": "tagged", "folder": None},
            "folder = None: it must be a folder with the files of CoNLL-2003.",
        ),
    ],
)
def test_what_a_corpus_does_not_have_is_refused(tmp_path, given, sentence):
    with pytest.raises(BadInput) as refusal:
        named(**{"folder": tmp_path} | given)
    assert str(refusal.value).startswith(sentence)


def test_every_corpus_has_a_kind_and_sorted_labels():
    assert {known.kind for known in CORPORA.values()} == set(KINDS)
    for name, known in CORPORA.items():
        if known.kind in ("labelled", "tagged"):
            assert list(known.labels) == sorted(set(known.labels)) != [], name
