"""The corpora have the pairs that their authors and the paper count, and a missing file is asked for by name."""

import json
from pathlib import Path

import datasets
import pytest

from dpnlp.checks import BadInput
from dpnlp.data.corpora import CORPORA, named

DATA = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the published files, which are not part of the project")


def size(pairs):
    return sum(1 for _ in pairs)


@real
def test_clinspen_has_the_pairs_and_the_cases_of_the_paper():
    corpus = named("clinspen", DATA / "clinspen")
    assert size(corpus.train) + size(corpus.validation) == 1065
    assert [size(corpus.train), size(corpus.validation), size(corpus.test)] == [968, 97, 2870]
    first = next(iter(corpus.train))
    assert first.source.startswith("El paciente, un hombre")
    assert first.target.startswith("The patient, a 51-year-old male")
    published = json.loads((DATA / "clinspen" / "train.json").read_text())
    assert [pair.owner for pair in corpus.train] == [row["file_name"] for row in published]
    assert len({pair.owner for pair in corpus.train}) == 42


@real
def test_bsd_joins_both_directions_into_one():
    corpus = named("bsd", DATA / "bsd")
    assert [size(corpus.validation), size(corpus.test)] == [2051, 2120]
    published = json.loads((DATA / "bsd" / "test.json").read_text())
    sentences = [(dialogue["id"], sentence) for dialogue in published for sentence in dialogue["conversation"]]
    expected = [(sentence["ja_sentence"], sentence["en_sentence"], owner) for owner, sentence in sentences]
    assert list(corpus.test) == expected
    speakers = named("bsd", DATA / "bsd", source="en", owner="speaker").test
    assert [tuple(pair) for pair in speakers] == [
        (sentence["en_sentence"], sentence["ja_sentence"], sentence["en_speaker"]) for _, sentence in sentences
    ]


@real
def test_multi30k_has_its_splits_in_both_directions():
    corpus = named("multi30k", DATA / "multi30k")
    assert [size(corpus.train), size(corpus.validation), size(corpus.test)] == [29_000, 1014, 1000]
    others = {test: size(named("multi30k", DATA / "multi30k", test=test).test) for test in CORPORA["multi30k"].tests}
    assert others == {"test_2017_flickr": 1000, "test_2017_mscoco": 461, "test_2018_flickr": 1071}
    back = named("multi30k", DATA / "multi30k", "en", "de").test
    assert [(pair.target, pair.source) for pair in back] == [(pair.source, pair.target) for pair in corpus.test]
    assert next(iter(corpus.train)).source == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."


def test_multi30k_need_not_be_packed(tmp_path):
    for language in ("fr", "cs"):
        (tmp_path / f"train.{language}").write_text(f"{language} 1\n{language} 2\n")
    assert list(named("multi30k", tmp_path, "fr", "cs").train) == [("fr 1", "cs 1", None), ("fr 2", "cs 2", None)]


ROWS = [{"de": "Hallo", "en": "hello"}, {"de": " ", "en": "lost"}, {"de": "Welt", "en": "world"}]


@pytest.fixture
def wmt(tmp_path):
    part = datasets.Dataset.from_dict({"translation": ROWS})
    datasets.DatasetDict(train=part, validation=part, test=part).save_to_disk(tmp_path / "wmt16")
    return tmp_path / "wmt16"


def test_wmt16_comes_from_the_hub(monkeypatch, wmt):
    asked = []

    def load_dataset(name, configuration, split):
        asked.append((name, configuration, split))
        return datasets.load_from_disk(wmt)[split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    corpus = named("wmt16")
    assert asked == [("wmt16", "de-en", split) for split in ("train", "validation", "test")]
    assert list(corpus.train) == [("Hallo", "hello", None), ("Welt", "world", None)]
    assert corpus.train.left_out() == 1


def test_wmt16_comes_from_a_folder_too(wmt):
    assert list(named("wmt16", wmt, "en", "de").test) == [("hello", "Hallo", None), ("world", "Welt", None)]


@pytest.mark.parametrize(
    ("given", "direction"),
    [
        ({}, ("de", "en")),
        ({"source": "en"}, ("en", "de")),
        ({"target": "de"}, ("en", "de")),
        ({"source": "fr"}, ("fr", "en")),
        ({"target": "cs"}, ("de", "cs")),
        ({"source": "cs", "target": "fr"}, ("cs", "fr")),
    ],
)
def test_a_language_that_is_not_given_is_the_usual_one(tmp_path, given, direction):
    files = named("multi30k", tmp_path, **given).train.table.files
    assert [path.name for path in files] == [f"train.{language}.gz" for language in direction]


@pytest.mark.parametrize(
    ("name", "split", "sentence"),
    [
        (
            "bsd",
            "train",
            "{folder}/train.json: there is no such file; "
            "put train.json of the Business Scene Dialogue corpus into {folder}.",
        ),
        (
            "clinspen",
            "validation",
            "{folder}/dev.json: there is no such file; put dev.json of ClinSPEn-CC into {folder}.",
        ),
        (
            "multi30k",
            "test",
            "{folder}/test_2016_flickr.de.gz: there is no such file; "
            "put test_2016_flickr.de.gz and test_2016_flickr.en.gz of Multi30k into {folder}.",
        ),
    ],
)
def test_a_missing_file_is_asked_for_when_its_split_is_read(tmp_path, name, split, sentence):
    pairs = getattr(named(name, tmp_path), split)
    for read in (list, lambda pairs: pairs.files):
        with pytest.raises(BadInput) as refusal:
            read(pairs)
        assert str(refusal.value) == sentence.format(folder=tmp_path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "wmt"}, "corpus = wmt: it must be one of wmt16, multi30k, clinspen, bsd."),
        ({"name": "bsd", "source": "jp"}, "source = jp: it must be one of ja, en."),
        ({"name": "multi30k", "target": "es"}, "target = es: it must be one of en, de, cs, fr."),
        (
            {"name": "bsd", "source": "en", "target": "en"},
            "target = en: it is the language of the source, too; choose another one.",
        ),
        ({"name": "bsd", "owner": "id"}, "owner = id: it must be one of scenario, speaker."),
        ({"name": "multi30k", "owner": "id"}, "owner = id: there is none in this corpus; leave it out."),
        ({"name": "bsd", "test": "test2"}, "test = test2: it must be one of test."),
        (
            {"name": "bsd", "folder": None},
            "folder = None: it must be a folder with the files of the Business Scene Dialogue corpus.",
        ),
        (
            {"name": "clinspen", "folder": "nowhere"},
            "folder = nowhere: it must be a folder with the files of ClinSPEn-CC.",
        ),
    ],
)
def test_what_a_corpus_does_not_have_is_refused(tmp_path, given, sentence):
    with pytest.raises(BadInput) as refusal:
        named(**{"folder": tmp_path} | given)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("content", ["[3]", '[{"id": 1}]', '[{"id": 1, "conversation": ["a"]}]'])
def test_a_file_that_is_no_bsd_is_refused(tmp_path, content):
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(BadInput) as refusal:
        list(named("bsd", tmp_path).train)
    where = tmp_path / "train.json"
    assert str(refusal.value) == f"{where}, line 1: it is no dialogue of BSD; take the file as it is published."
