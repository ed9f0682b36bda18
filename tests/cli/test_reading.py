"""`dpnlp train`, `evaluate` and `predict` for tasks of reading, run as a person runs them, on micro models."""

import json
import re

import jax
import numpy as np
import pytest
import transformers
from jax.experimental.compilation_cache import compilation_cache
from safetensors.numpy import load_file

from dpnlp.guarantee import Exposure, Guarantee
from dpnlp.models.pretrained import load_reader
from dpnlp.models.readers import Head
from dpnlp.tasks.answering import Answering

from ..tasks.readers import (
    ENDINGS,
    LABELS,
    TAGS,
    WORDS,
    asked,
    encoder,
    labelled,
    questions,
    tagged,
    tokenizer,
    write_labelled,
    write_questions,
    write_tagged,
)
from ..tasks.test_answering import LONGEST, MOST, STRIDE, naive
from .interrupted import interrupted

SMALL = (
    f"--data.longest {LONGEST} --data.cache cache --learning.lot-size 6 --learning.physical-batch 8 --learning.steps 2"
)
SMALL += f" --learning.lengths {LONGEST} --learning.rate 0.01 --scoring.batch 8 --privacy.delta 1e-3 --privacy.seed 0"
SMALL += " --model.hidden 6 --model.rank 2"
TRAIN, TEST = 20, 6
RECORDS = {
    "classification": lambda count, seed: labelled(count, seed, pairs=True),
    "tagging": tagged,
    "answering": questions,
}
WRITERS = {"classification": write_labelled, "tagging": write_tagged, "answering": write_questions}
HEADS = {"classification": Head.SEQUENCES, "tagging": Head.TOKENS, "answering": Head.SPANS}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a micro BERT, word vectors, and 20 private records and 6 to test on for each task."""
    home = tmp_path_factory.mktemp("home")
    encoder(home / "start")
    for task, made in RECORDS.items():
        WRITERS[task](home / f"{task}.jsonl", made(TRAIN, 1))
        WRITERS[task](home / f"{task}-test.jsonl", made(TEST, 2))
    rng = np.random.default_rng(0)
    vectors = (" ".join([word, *(f"{number:.3f}" for number in rng.normal(size=5))]) for word in WORDS)
    (home / "glove.txt").write_text("".join(f"{line}\n" for line in vectors))
    snips = {"train": labelled(TRAIN, 1), "valid": labelled(2, 3), "test": labelled(TEST, 2)}
    names = dict(zip(LABELS, ("GetWeather", "PlayMusic", "RateBook"), strict=True))
    for split, records in snips.items():
        (home / "snips" / split).mkdir(parents=True)
        (home / "snips" / split / "seq.in").write_text("".join(f"{record.text}\n" for record in records))
        (home / "snips" / split / "label").write_text("".join(f"{names[record.label]}\n" for record in records))
    return home


def command(task, name, flags=""):
    """Trains on the usual files, where the flags name no other data."""
    files = {"--data.train": f"{task}.jsonl", "--data.test": f"{task}-test.jsonl"}
    others = {"--data.train": ("--data.train", "--data.corpus"), "--data.test": ("--data.corpus", "--data.held-out")}
    usual = [f"{flag} {file}" for flag, file in files.items() if not any(other in flags for other in others[flag])]
    pair = "--data.pair pair" if task == "classification" and "--data.corpus" not in flags else ""
    return f"train --task {task} --name {name} --model.start start {' '.join(usual)} {pair} {SMALL} {flags}"


RUNS = {
    "pairs": ("classification", "--privacy.epsilon 8 --model.strategy tr-all --data.owner who"),
    "tags": ("tagging", f"--privacy.epsilon 8 --model.strategy tr-no --data.labels {' '.join(TAGS)}"),
    "answers": (
        "answering",
        f"--privacy.epsilon 8 --model.strategy tr-last2 --data.stride {STRIDE} --data.answer-length {MOST}",
    ),
    "adapters": ("tagging", "--privacy.epsilon inf --model.strategy lora"),
}
"""Runs whose models transformers opens: task and flags."""
LSTMS = {
    "vectors": (
        "tagging",
        "--model.strategy bilstm --model.start glove.txt --privacy.epsilon 8 --model.shares 6 3 1",
    ),
    "lstm": ("classification", "--model.strategy tr-no-lstm --privacy.epsilon inf --data.held-out 0.3"),
}
"""Runs whose models dpnlp alone opens."""


@pytest.fixture(scope="module")
def runs(home, dpnlp):
    """Makes one of these runs, when it is first asked for."""

    def made(name):
        if not (home / "runs" / name).exists():
            task, flags = (RUNS | LSTMS)[name]
            code, _, err = dpnlp(command(task, name, flags))
            assert code == 0, err
        return home / "runs" / name

    return made


def promised(run):
    return Guarantee.from_json(json.loads((run / "privacy.json").read_text())["guarantee"])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_the_model_the_guarantee_scores_what_is_behind_them_answers_and_a_page(name, runs):
    run, (task, flags) = runs(name), RUNS[name]
    assert sorted(path.name for path in run.iterdir()) == [
        "config.yaml",
        "details.json",
        "metrics.jsonl",
        "model",
        "predictions",
        "privacy.json",
        "report.html",
    ]
    (row,) = lines(run / "metrics.jsonl")
    assert (row["step"], row["split"]) == (2, "test")
    details = json.loads((run / "details.json").read_text())["test"]
    if task == "answering":
        assert row["f1"] == details["f1"]
        assert details["answerable"]["questions"] + details["unanswerable"]["questions"] == TEST
    else:
        assert row["macro_f1"] == details["macro_f1"]
        assert details["labels"] == list(LABELS if task == "classification" else TAGS)
        assert ("entities" in details) == (task == "tagging")
    assert len(lines(run / "predictions" / "test.jsonl")) == TEST
    assert promised(run).epsilon == (float("inf") if "inf" in flags else pytest.approx(8, abs=0.05))


@pytest.mark.parametrize("name", ["pairs", "tags", "answers"])
def test_law_9_no_file_that_a_private_run_writes_holds_a_text_of_the_training_set(name, runs):
    task = RUNS[name][0]
    texts = {text for record in RECORDS[task](TRAIN, 1) for text in spoken(record) if text.count(" ") > 2}
    assert len(texts) > TRAIN // 2
    for path in (path for path in runs(name).rglob("*") if path.is_file()):
        assert not [text for text in texts if text in words_of(path)], path
    held_out = words_of(runs(name) / "predictions" / "test.jsonl")
    assert all(spoken(record)[-1 if task == "tagging" else 1] in held_out for record in RECORDS[task](TEST, 2))


def words_of(path):
    """What stands in a file, without what JSON puts between words."""
    return re.sub(r'[",\s]+', " ", path.read_bytes().decode("utf-8", "replace"))


def spoken(record):
    """The texts of a record."""
    if isinstance(record[0], tuple):
        return [" ".join(record.words)]
    return [text for text in record[:3] if text]


def test_classes_that_were_taken_from_private_data_are_named_as_not_covered(runs):
    assert Exposure.CLASSES in promised(runs("pairs")).not_covered
    assert Exposure.CLASSES.value in (runs("pairs") / "report.html").read_text()


@pytest.mark.parametrize("name", ["tags", "answers"])
def test_classes_that_were_named_beforehand_are_no_exposure(name, runs):
    assert Exposure.CLASSES not in promised(runs(name)).not_covered


def test_a_corpus_names_its_classes_itself(home, dpnlp):
    flags = "--data.corpus snips --data.folder snips --model.strategy tr-no --privacy.epsilon 8"
    code, _, err = dpnlp(command("classification", "snips", flags))
    assert code == 0, err
    assert Exposure.CLASSES not in promised(home / "runs" / "snips").not_covered
    assert len(json.loads((home / "runs" / "snips" / "details.json").read_text())["test"]["labels"]) == 7
    assert {path.stem for path in (home / "runs" / "snips" / "predictions").iterdir()} == {"test", "validation"}


def test_all_windows_of_a_question_are_one_record_of_the_guarantee(home, runs):
    """There are more windows than questions, and the plan is for questions."""
    task = Answering(None, tokenizer(), (), LONGEST, STRIDE)
    assert len(task.numbers(questions(TRAIN, 1))["record"]) > TRAIN + 5
    plan = json.loads((runs("answers") / "privacy.json").read_text())["plan"]
    assert plan["schedule"]["records"] == TRAIN
    assert promised(runs("answers")).unit == "example"


@pytest.mark.parametrize("name", RUNS)
def test_the_model_opens_in_transformers_and_gives_the_same_answers(name, runs):
    task, run = RUNS[name][0], runs(name)
    theirs = getattr(transformers, f"AutoModel{ENDINGS[HEADS[task]]}").from_pretrained(run / "model").eval()
    read = transformers.AutoTokenizer.from_pretrained(run / "model")
    found = [line["hypothesis"] for line in lines(run / "predictions" / "test.jsonl")]
    for record, answer in zip(RECORDS[task](TEST, 2), found, strict=True):
        if task == "classification":
            given = read(record.text, record.pair)
            logits = asked(theirs, given["input_ids"], given["token_type_ids"]).logits
            assert theirs.config.id2label[int(logits.argmax())] == answer
        elif task == "tagging":
            given = read(list(record.words), is_split_into_words=True)
            best = asked(theirs, given["input_ids"], given["token_type_ids"]).logits[0].argmax(-1).tolist()
            words = given.word_ids()
            firsts = [words.index(word) for word in range(len(record.words))]
            assert " ".join(theirs.config.id2label[best[place]] for place in firsts) == answer
        else:
            assert naive(theirs, record) == answer


@pytest.mark.parametrize("name", LSTMS)
def test_a_model_with_an_lstm_is_saved_for_dpnlp(name, runs):
    task, flags = LSTMS[name]
    reader = load_reader(runs(name) / "model", HEADS[task])
    assert reader.labels == (LABELS if task == "classification" else TAGS)
    assert reader.model.config.strategy in flags


def test_the_head_starts_from_the_shares_that_are_given_on_word_vectors_too(runs):
    """Two steps have moved it by less than a tenth."""
    bias = load_reader(runs("vectors") / "model", Head.TOKENS).model.head.bias.value[...]
    np.testing.assert_allclose(bias, np.log([0.6, 0.3, 0.1]), atol=0.1)


def test_a_run_is_scored_and_used_as_it_was_trained(home, runs, dpnlp):
    code, out, err = dpnlp(f"evaluate {runs('tags')} --json")
    assert code == 0, err
    (row,) = lines(runs("tags") / "metrics.jsonl")
    assert json.loads(out)["macro_f1"]["score"] == pytest.approx(row["macro_f1"])
    sentences = tagged(TEST, 2)
    (home / "lines.txt").write_text("".join(f"{' '.join(record.words)}\n" for record in sentences))
    code, out, err = dpnlp(f"predict {runs('tags')} lines.txt")
    assert code == 0, err
    expected = [line["hypothesis"] for line in lines(runs("tags") / "predictions" / "test.jsonl")]
    assert out.splitlines() == expected


def test_a_share_that_was_kept_apart_is_scored_unless_other_texts_are_given(runs, dpnlp):
    kept = len(lines(runs("lstm") / "predictions" / "test.jsonl"))
    assert 0 < kept < TRAIN
    for given, count in (("", kept), ("--data.test classification-test.jsonl", TEST)):
        code, out, err = dpnlp(f"evaluate {runs('lstm')} {given}")
        assert code == 0, err
        assert f"on {count} records" in out


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_run_of_another_task_is_one_sentence(verb, runs, dpnlp):
    code, _, err = dpnlp(f"{verb} {runs('answers')} --task tagging")
    assert code == 2
    assert err == f"dpnlp: --task = tagging: the run in {runs('answers')} has learned answering; leave --task out.\n"


def test_a_run_goes_on_from_an_earlier_one_and_names_what_that_one_did_not_cover(home, runs, dpnlp):
    start = runs("pairs")
    flags = f"--privacy.epsilon 8 --model.strategy tr-no --model.start {start} --data.labels {' '.join(LABELS)}"
    code, _, err = dpnlp(command("classification", "further", flags))
    assert code == 0, err
    assert promised(home / "runs" / "further").epsilon > promised(start).epsilon
    assert Exposure.CLASSES in promised(home / "runs" / "further").not_covered
    rows = lines(home / "runs" / "further" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 2]
    before = [line["before"] for line in lines(home / "runs" / "further" / "predictions" / "test.jsonl")]
    assert before == [line["hypothesis"] for line in lines(start / "predictions" / "test.jsonl")]


def test_ctrl_c_keeps_a_checkpoint_and_the_run_goes_on_to_the_same_model(home, dpnlp):
    flags = "--privacy.epsilon 8 --model.strategy tr-no --learning.steps 60 --learning.checkpoint-every 1000"
    long = command("tagging", "stopped", flags)
    said = interrupted(home, long, "stopped")
    assert "Go on with: dpnlp train runs/stopped/config.yaml --resume" in said
    assert dpnlp("train runs/stopped/config.yaml --resume")[0] == 0
    assert dpnlp(long.replace("stopped", "whole") + " --privacy.ledger whole.ledger")[0] == 0
    first, again = (load_file(home / "runs" / name / "model" / "model.safetensors") for name in ("stopped", "whole"))
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_programs_that_are_kept_for_the_next_run_hold_nothing_of_the_texts(home, dpnlp):
    """Law 9: a program stays behind on the machine. One that held a text would be another for other texts."""
    others = dict(zip(WORDS, [*WORDS[1:], WORDS[0]], strict=True))
    rows = lines(home / "tagging.jsonl")
    turned = [row | {"words": [others[word[:2]] + word[2:] for word in row["words"]]} for row in rows]
    (home / "turned.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in turned))
    settings = {
        "jax_compilation_cache_dir": str(home / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before, kept = {name: getattr(jax.config, name) for name in settings}, []
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        for file in ("tagging", "turned"):
            jax.clear_caches()
            compilation_cache.reset_cache()
            flags = f"--data.train {file}.jsonl --model.strategy tr-no --privacy.epsilon 8 --privacy.seed 0"
            own = f"--privacy.ledger {file}.ledger --data.cache {file}.cache"  # Nothing is there of an earlier run.
            code, _, err = dpnlp(command("tagging", f"{file}-kept", f"{flags} {own}"))
            assert code == 0, err
            kept.append({path.name for path in (home / "compiled").iterdir() if path.name.endswith("-cache")})
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
    assert kept[0]
    assert kept[1] == kept[0]


REFUSALS = {
    "another task": ("classification", "--task clasification", "the nearest is classification."),
    "a label that is not named": (
        "classification",
        "--data.labels bad fair",
        "label = 'good': it must be one of bad, fair; name all of them.",
    ),
    "a file of another kind": ("classification", "--data.train snips/train/seq.in", "a file of texts must end in"),
    "a corpus of another kind": (
        "classification",
        "--data.corpus squad2",
        "corpus = squad2: it has questions about texts, and here texts with a label are needed; choose one of",
    ),
    "a file of another task": ("tagging", "--data.train classification.jsonl", "the words (words) is missing"),
    "words without a tag": (
        "tagging",
        "--data.train uneven.jsonl",
        "uneven.jsonl, line 2: the sentence has 3 words and 2 tags; give each word one tag.",
    ),
    "an answer outside its text": (
        "answering",
        "--data.stride 6 --data.train outside.jsonl",
        "which is not at 4 and nowhere in the",
    ),
    "shares of another number": (
        "classification",
        "--model.shares 1 2",
        "shares: there are 2 for 3 labels; give one for each.",
    ),
    "shares of places": ("answering", "--model.shares 1 2", "shares: an answer's start and end are places, not labels"),
    "labels of places": ("answering", "--data.labels a b", "spans have no labels; leave them out."),
    "windows without room": ("answering", "--data.stride 17", "stride = 17: it must be at most half of longest = 32"),
    "a BERT for word vectors": ("tagging", "--model.strategy bilstm", "strategy = bilstm: it reads with word vectors"),
    "no word vectors": ("tagging", "--model.strategy bilstm --model.start none.txt", "none.txt: it cannot be read"),
    "a head for another task": ("answering", "--model.start runs/tags", "its head is for tokens, which must be spans"),
    "smoothing": ("tagging", "--learning.smoothing 0.1", "smoothing = 0.1: it is for translation; leave it out."),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, home, runs, dpnlp):
    task, flags, sentence = REFUSALS[case]
    if "runs/tags" in flags:
        runs("tags")
    uneven = [*({"words": ["ba", "de", "di"], "tags": tags} for tags in (["O"] * 3, ["O"] * 2))]
    (home / "uneven.jsonl").write_text("".join(json.dumps(row) + "\n" for row in uneven))
    outside = questions(1)[0]
    write_questions(
        home / "outside.jsonl", [outside._replace(answers=(outside.answers[0]._replace(text="x", start=4),))]
    )
    code, _, err = dpnlp(command(task, "bad", flags.format(home=home.name)))
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert not (home / "runs" / "bad").exists()
