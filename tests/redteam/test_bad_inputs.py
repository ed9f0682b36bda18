"""Bad inputs: each is refused in one sentence, with exit code 2, in little time, and leaves nothing behind."""

import contextlib
import io
import re
import shlex
import shutil
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

from dpnlp.cli.main import main

from ..tasks.readers import WORDS, encoder, labelled, write_labelled
from .bad_inputs import ODD, Bad, damaged, sample, settings, settings_in_files, tree
from .conftest import THOROUGH

SECONDS = 20
TRAIN = (
    "train --task classification --data.train notes.jsonl --data.test test.jsonl --data.longest 16 --data.cache cache "
    "--model.strategy tr-no --learning.lot-size 8 --learning.physical-batch 8 --learning.steps 2 "
    "--learning.lengths 16 --scoring.batch 8 --privacy.delta 1e-3 --privacy.accountant rdp"
)
SETTINGS = list(settings())
IN_FILES = list(settings_in_files())


class TooLong(BaseException):
    """No refusal within the time."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with data, a model and a run, in which commands are run; the home of who runs them lies in it, too."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name in ("own", "temporary"):
            (home / name).mkdir()
        patch.setenv("HOME", str(home / "own"))
        patch.setenv("DPNLP_HOME", str(home / "own" / "dpnlp"))
        patch.setenv("TMPDIR", str(home / "temporary"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("tempfile.tempdir", None)
        _filled(home)
        yield home


def _filled(home):
    """Data, a model, a run, rewriters and a ledger, all of them micro."""
    encoder(home / "start", layers=1)
    write_labelled(home / "notes.jsonl", labelled(24, 1))
    write_labelled(home / "test.jsonl", labelled(6, 2))
    write_labelled(home / "counted.jsonl", labelled(6, 3))
    write_labelled(home / "others.jsonl", [one._replace(label="other") for one in labelled(6, 4)])
    write_labelled(home / "lines.jsonl", [one._replace(label=f"two\n{one.label}") for one in labelled(24, 5)])
    write_labelled(home / "topics.jsonl", [one._replace(label=f"topic {n}") for n, one in enumerate(labelled(1001, 6))])
    (home / "temporary" / "line.txt").write_text("half a line")
    rng = np.random.default_rng(0)
    vectors = (" ".join([word, *(f"{number:.3f}" for number in rng.normal(size=4))]) for word in WORDS)
    (home / "glove.txt").write_text("".join(f"{line}\n" for line in vectors))
    (home / "bank.txt").write_text("".join(f"{one} {two}\n" for one in WORDS[:4] for two in WORDS[4:8]))
    for line in (
        f"{TRAIN} --name run --model.start start",
        "pretrain --method words --output words --vectors glove.txt",
        "pretrain --method echo --output echo --data.train bank.txt --data.public --model.encoder start",
        "rewrite --name rewritten --rewriter echo --data.train notes.jsonl --privacy.epsilon 3",
        "ledger budget counted.jsonl --epsilon 5 --delta 1e-6",
        "ledger add counted.jsonl --what counts --epsilon 1",
    ):
        code, _, err = run(shlex.split(line))
        assert code == 0, err


def run(line):
    """The exit code of a command line, and what it wrote."""
    out, err = io.StringIO(), io.StringIO()

    def late(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(list(line))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, out.getvalue(), err.getvalue()


def faults(home, bad):
    """What is wrong with how a bad input is met; nothing if all is well."""
    for copy, source in bad.copies.items():
        shutil.copytree(home / source, home / copy)
    for name, kind in bad.odd.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).unlink(missing_ok=True)
        ODD[kind](home / name)
    for name, content in bad.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)
    before = tree(home)
    try:
        code, out, err = run(bad.line)
    except TooLong:
        return [f"no answer within {SECONDS} seconds"]
    finally:
        after = tree(home)
        shutil.rmtree(home / "bad", ignore_errors=True)
        for path in set(after) - set(before):
            if (home / path).is_dir():
                shutil.rmtree(home / path, ignore_errors=True)
            else:
                (home / path).unlink(missing_ok=True)
    if code == 0 and bad.may_pass:
        return []
    return [
        *_faults(bad, code, out, err),
        *(f"left behind: {path}" for path in after if before.get(path) != after[path]),
    ]


def _faults(bad, code, out, err):
    lines = [line for line in err.splitlines() if not line.startswith("dpnlp: note: ")]
    if code != 2:
        yield f"exit code {code}: {err[-300:]}"
    elif len(lines) != 1 or not lines[0].startswith("dpnlp: "):
        yield f"not one sentence: {err[-500:]!r}"
    else:
        if not lines[0].endswith((".", "--resume")) or len(lines[0]) > 1200:
            yield f"no sentence: {lines[0]!r}"
        if re.search(r"\b\w+(Error|Exception)\b", lines[0]):
            yield f"it names a class: {lines[0]!r}"
        if bad.says not in lines[0]:
            yield f"it does not name {bad.says}: {lines[0]!r}"
        if not lines[0].isprintable():
            yield f"it steers the terminal: {lines[0]!r}"
    if out:
        yield f"on stdout: {out[:200]!r}"


def refuse_all(home, cases):
    """Fails with a line for each of the bad inputs that is not met as it should be."""
    found = [f"{bad.name}: {' '.join(wrong)}" for bad in cases if (wrong := faults(home, bad))]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_every_setting_out_of_its_range_is_refused(home):
    refuse_all(home, SETTINGS if THOROUGH else sample(SETTINGS, 400))


def test_every_setting_of_a_wrong_type_in_a_file_is_refused(home):
    refuse_all(home, IN_FILES if THOROUGH else sample(IN_FILES, 200))


LIES = ("NaN", "another shape", "a huge shape", "offsets beyond the end", "another type", "another name", "half")
"""What is done to weights and must be noticed."""
DAMAGED = [
    ("start", "config.json", f"{TRAIN} --name new --model.start {{}}", ()),
    ("start", "model.safetensors", f"{TRAIN} --name new --model.start {{}}", LIES),
    ("start", "tokenizer.json", f"{TRAIN} --name new --model.start {{}}", ()),
    ("start", "tokenizer_config.json", f"{TRAIN} --name new --model.start {{}}", ()),
    ("runs/run", "config.yaml", "evaluate {} --data.test test.jsonl", ()),
    ("runs/run", "privacy.json", "report {}", ()),
    ("runs/run", "metrics.jsonl", "report {}", ()),
    ("runs/run", "details.json", "report {}", ()),
    ("runs/run", "model/tokenizer.json", "predict {} bank.txt", ()),
    ("runs/run", "model/tokenizer_config.json", "predict {} bank.txt", ()),
    ("runs/run", "model/config.json", "predict {} bank.txt", ()),
    ("runs/run", "model/model.safetensors", "predict {} bank.txt", LIES),
    ("runs/rewritten", "privacy.json", "report {}", ()),
    ("runs/rewritten", "config.yaml", "report {}", ()),
    ("runs/run", "config.yaml", "audit {} --attacks membership --records 10", ()),
    ("runs/run", "privacy.json", f"{TRAIN} --name new --model.start {{}}", ()),
    ("echo", "rewriter.json", "rewrite --name new --rewriter {} --data.train notes.jsonl --privacy.epsilon 3", ()),
    ("echo", "bank.json", "rewrite --name new --rewriter {} --data.train notes.jsonl --privacy.epsilon 3", ()),
    ("echo", "bank.safetensors", "rewrite --name new --rewriter {} --data.train notes.jsonl --privacy.epsilon 3", LIES),
    ("words", "rewriter.json", "rewrite --name new --rewriter {} --data.train notes.jsonl --privacy.epsilon 3", ()),
]


@pytest.mark.parametrize(("source", "file", "line", "must"), DAMAGED, ids=lambda value: str(value)[:20])
def test_a_damaged_or_lying_file_is_refused(home, source, file, line, must):
    found = list(damaged(home, source, file, line, must))
    always = [bad for bad in found if not bad.may_pass]
    cases = [bad for bad in found if bad.may_pass]
    refuse_all(home, [*always, *sample(cases, 300 if THOROUGH else 4)])


GRID = "settings: {task: classification, data: {train: notes.jsonl}, model: {start: start}},"
BILSTM = f"{TRAIN.replace('tr-no', 'bilstm')} --name new --model.start {{}}"
NODES = "train --task nodes --name new --data.texts counted.jsonl --data.edges {}"
RUN = "--name new --model.start start"
REWRITE = "rewrite --name new --rewriter echo --privacy.epsilon 3"
COMMANDS = {
    # What comes out is not what goes in.
    "predict into its input": "predict runs/run bank.txt --output bank.txt",
    "predict into its input by another name": "predict runs/run bank.txt --output ./runs/../bank.txt",
    "predict into its model": "predict runs/run bank.txt --output runs/run/config.yaml",
    "predict into a folder": "predict runs/run bank.txt --output runs",
    "predict into no folder": "predict runs/run bank.txt --output none/out.txt",
    "predict from a folder": "predict runs/run runs",
    "predict from nothing": "predict runs/run none.txt",
    "predict of a file": "predict notes.jsonl bank.txt",
    "evaluate into its data": "evaluate runs/run --data.test test.jsonl --output test.jsonl",
    "evaluate into a folder": "evaluate runs/run --data.test test.jsonl --output runs",
    "evaluate into no folder": "evaluate runs/run --data.test test.jsonl --output none/out.jsonl",
    "evaluate on a folder": "evaluate runs/run --data.test runs",
    "vocabulary into its data": "vocabulary --output bank.txt --data.train bank.txt --data.public",
    "vocabulary into a file's folder": "vocabulary --output bank.txt/words --data.train bank.txt --data.public",
    "vocabulary of a folder": "vocabulary --output new --data.train runs --data.public",
    "vocabulary of nothing": "vocabulary --output new --data.train none.txt --data.public",
    "pretrain into its data": "pretrain --method words --output glove.txt --vectors glove.txt",
    "pretrain of a folder": "pretrain --method words --output new --vectors runs",
    "pretrain of a model": "pretrain --method words --output new --vectors start/model.safetensors",
    "pretrain echo without an encoder": "pretrain --method echo --output new --data.train bank.txt --data.public "
    "--model.encoder echo",
    "pretrain into a file's folder": "pretrain --method words --output glove.txt/new --vectors glove.txt",
    "report into data": "report runs/run --output notes.jsonl",
    "report into a folder": "report runs/run --output runs",
    "report of data": "report notes.jsonl",
    "report of nothing": "report none",
    "plot into data": "report runs/run runs/rewritten --plot notes.jsonl",
    "plot of unknown kind": "account --examples 100 --lot-size 10 --steps 5 --delta 1e-5 --epsilon 1 --plot a.xyz",
    "plot into nothing": "account --examples 100 --lot-size 10 --steps 5 --delta 1e-5 --epsilon 1 --plot none/a.png",
    # Files where folders should be, and the other way round.
    "runs in a file": f"{TRAIN} {RUN} --runs notes.jsonl",
    "a cache in a file": f"{TRAIN.replace('cache cache', 'cache notes.jsonl')} {RUN}",
    "a model in a file": f"{TRAIN} --name new --model.start notes.jsonl",
    "a model in no folder": f"{TRAIN} --name new --model.start none/none/none",
    "a model in an empty folder": f"{TRAIN} --name new --model.start temporary",
    "a ledger in a folder": f"{TRAIN} {RUN} --privacy.ledger runs",
    "a ledger of a rewriting in a folder": f"{REWRITE} --data.train notes.jsonl --privacy.ledger runs",
    "a ledger in a file's folder": f"{TRAIN} {RUN} --privacy.ledger notes.jsonl/ledger",
    "data in a folder": f"{TRAIN} {RUN} --data.train runs",
    "a run of this name": f"{TRAIN} --name run --model.start start",
    "a run that is finished": "train runs/run/config.yaml --resume",
    "a rewriter in a file": f"{REWRITE.replace('--rewriter echo', '--rewriter notes.jsonl')} --data.train notes.jsonl",
    "a model for a rewriter": f"{REWRITE.replace('--rewriter echo', '--rewriter start')} --data.train notes.jsonl",
    "rewriting into a file": f"{REWRITE} --data.train notes.jsonl --runs notes.jsonl",
    "rewriting in a folder of others": f"{REWRITE.replace('new', 'run')} --data.train notes.jsonl",
    "a ledger of nothing": "ledger add none.jsonl --what x --epsilon 1",
    "a budget of nothing": "ledger budget none.jsonl --epsilon 1 --delta 1e-6",
    "an audit of data": "audit notes.jsonl",
    "an audit of a rewriting": "audit runs/rewritten",
    # What dpnlp keeps, and what lies in a run, is no place for an output.
    "predict into a ledger": "predict runs/run bank.txt --output notes.jsonl.ledger",
    "predict into a key": "predict runs/run bank.txt --output notes.jsonl.ledger.key",
    "predict into the owner's key": "predict runs/run bank.txt --output own/dpnlp/key",
    "predict into another run": "predict runs/run bank.txt --output runs/rewritten/privacy.json",
    "predict into a rewriter": "predict runs/run bank.txt --output echo/rewriter.json",
    "evaluate into the training data": "evaluate runs/run --data.test test.jsonl --output notes.jsonl",
    "predict into what is swept away": "predict runs/run bank.txt --output .x.dpnlp-unfinished",
    "a vocabulary that is swept away": "vocabulary --output .x.dpnlp-lock --data.train bank.txt --data.public",
    "a vocabulary in a run": "vocabulary --output runs/run/new --data.train bank.txt --data.public",
    "a rewriter in a rewriter": "pretrain --method words --output words/new --vectors glove.txt",
    "a run in a run": f"{REWRITE} --data.train notes.jsonl --runs runs/run",
    "a run in a model": f"{REWRITE} --data.train notes.jsonl --runs runs/run/model",
    "a run that is swept away": f"{REWRITE.replace('new', '.x.dpnlp-unfinished')} --data.train notes.jsonl",
    "a ledger in a key": f"{REWRITE} --data.train notes.jsonl --privacy.ledger notes.jsonl.ledger.key",
    "a ledger in half a line": f"{REWRITE} --data.train notes.jsonl --privacy.ledger temporary/line.txt",
    "answers to training data in no file": "evaluate runs/run --on-training-data --output ..",
    "answers to training data in the audit": "evaluate runs/run --on-training-data --output audit.json",
    # What the operating system refuses.
    "a file of a long name": f"{TRAIN.replace('notes.jsonl', 'x' * 300 + '.jsonl')} {RUN}",
    "a model of a long name": f"{TRAIN} --name new --model.start {'a/' * 3000}",
    "a folder of a long name": f"report {'x' * 5000}",
    # Settings that do not go together, or with the data.
    "labels of which none is known": "evaluate runs/run --data.test others.jsonl",
    "test labels of which none is known": f"{TRAIN.replace('test.jsonl', 'others.jsonl')} {RUN}",
    "validation labels of which none is known": f"{TRAIN} {RUN} --data.validation others.jsonl",
    "more labels than a table has room for": f"{TRAIN.replace('notes.jsonl', 'topics.jsonl')} {RUN}",
    "labels of two lines": f"{TRAIN.replace('notes.jsonl', 'lines.jsonl')} {RUN}",
    "a label unseen": f"{TRAIN} {RUN} --data.labels nobody nothing",
    "one label": f"{TRAIN} {RUN} --data.labels a",
    "a label twice": f"{TRAIN} {RUN} --data.labels a a b",
    "a column unknown": f"{TRAIN} {RUN} --data.text words",
    "an owner unknown": f"{TRAIN} {RUN} --data.owner nobody --privacy.unit user",
    "a unit without an owner": f"{TRAIN} {RUN} --privacy.unit user",
    "a lot of more than all": f"{TRAIN} {RUN} --learning.lot-size 1000",
    "a delta above one record": f"{REWRITE} --data.train notes.jsonl --privacy.delta 1",
    "a share of nobody": f"{TRAIN} {RUN} --data.share 1e-9",
    "more devices than there are": f"{TRAIN} {RUN} --learning.devices 1000",
    "test data twice": f"{TRAIN} {RUN} --data.held-out 0.5",
    "three files": f"{TRAIN} {RUN} --data.train notes.jsonl test.jsonl bank.txt",
    "the training file as test": f"{TRAIN} {RUN} --data.test notes.jsonl",
    "a corpus unknown": f"{TRAIN} {RUN} --data.corpus none",
    "a corpus and files": f"{TRAIN} {RUN} --data.corpus sst2",
    "labels for texts alone": f"{REWRITE} --data.train bank.txt --privacy.label-epsilon 1",
    "tags given as text": f"{TRAIN.replace('classification', 'tagging')} {RUN} --data.train notes.jsonl",
    "questions that are none": f"{TRAIN.replace('classification', 'answering')} {RUN}",
    "a translation that is none": "train --task translation --name new --model.start start --data.train notes.jsonl",
    "nodes that are none": "train --task nodes --name new --data.texts notes.jsonl --data.edges bank.txt",
    "a model of another kind": "train --task modelling --name new --model.start start --data.train notes.jsonl",
    "generate of a reader": "generate runs/run bank.txt",
    "predict of a rewriting": "predict runs/rewritten bank.txt",
    "no noise and a finite epsilon": f"{TRAIN} {RUN} --privacy.noise-multiplier 1e-9",
    "more than one answer": "account --examples 100 --lot-size 10 --steps 5 --delta 1e-5",
    "nothing to answer": "account --examples 100 --lot-size 10 --steps 5 --delta 1e-5 --epsilon 1 --noise-multiplier 1",
    "an event that is none": "ledger add counted.jsonl --what x --event '[1]'",
    "an event of nan": """ledger add counted.jsonl --what x --event '{"event": "gaussian", "noise_multiplier": NaN}'""",
    "an event that is deep": f"ledger add counted.jsonl --what x --event '{'[' * 5000}'",
    "a release of more than the budget": "ledger add counted.jsonl --what x --epsilon 100",
    "a function that is not there": "audit mechanism --python none.py:f --first 1 --second 2 --epsilon 1",
    "a command that is not there": "audit mechanism --command none-such --first 1 --second 2 --epsilon 1 --trials 100",
    "lengths below the text's": f"{TRAIN} {RUN} --learning.lengths 2",
    "no settings": "train none.yaml",
    "a verb unknown": "trian",
    "digits that are not 0 to 9": f"{REWRITE} --data.train notes.jsonl --batch ٣",
    "a number that is too small": f"{TRAIN} {RUN} --learning.weight-decay 1e-400",
    "an event said twice": """ledger add counted.jsonl --what x --event """
    """'{"event": "gaussian", "noise_multiplier": 1, "noise_multiplier": 100}'""",
    "two files of settings": "train a.yaml b.yaml",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_does_not_go_together_is_refused(home, name):
    refuse_all(home, [Bad(name, tuple(shlex.split(COMMANDS[name])))])


ENDLESS = ("a pipe", "a device that never ends")


@pytest.mark.parametrize("name", sorted(ODD))
def test_what_is_no_file_is_refused_wherever_one_is_read(home, name):
    """A pipe that nobody writes to never begins, and a device never ends."""
    refuse_all(home, sample(list(odd(home, name)), 300 if THOROUGH else 8))


def odd(home, name):
    """For each command that reads something, a copy of it with one file that is none."""
    for source, file, line, _ in DAMAGED:
        place = f"bad/{Path(source).name}"
        words = tuple(shlex.split(line.format(place)))
        put, may_pass = {f"{place}/{file}": name}, name not in ENDLESS
        yield Bad(f"{words[0]} {source}/{file}: {name}", words, odd=put, copies={place: source}, may_pass=may_pass)
    for line in (*READERS, "train {}", "account {}", "sweep {}", NODES, "predict runs/run {}", BILSTM):
        for ending in ("jsonl", "jsonl.gz", "yaml", "txt"):
            words = tuple(shlex.split(line.format(f"bad/odd.{ending}")))
            yield Bad(f"{line[:30]}: {name}.{ending}", words, odd={f"bad/odd.{ending}": name})


NUMBERS = ("010", "1:30", "0x10", "0b11", "1__0", "00", "1_0.0_1")
"""What YAML reads as another number than stands there."""
TWICE = {
    "a setting by both its names": "privacy.epsilon: 3\nprivacy: {epsilon: 5}\n",
    "the same with one value": "privacy: {epsilon: 5}\nprivacy.epsilon: 5\n",
    **{f"epsilon of {number}": f"privacy: {{epsilon: {number}}}\n" for number in NUMBERS},
}


@pytest.mark.parametrize("name", TWICE)
def test_settings_that_say_another_thing_than_they_seem_to_are_refused(home, name):
    settings = {"bad/settings.yaml": TWICE[name].encode()}
    refuse_all(
        home, [Bad(name, ("train", "bad/settings.yaml", *shlex.split(f"{TRAIN} {RUN}")[1:]), settings, says="bad/")]
    )


GRIDS = {
    "a value of eight that says ten": "{grid: {privacy.epsilon: [010]}}",
    "one setting in two places": f"{{{GRID} grid: {{data.text: [a], 'data.text, data.label': [[b, c]]}}}}",
    "one setting twice in one place": f"{{{GRID} grid: {{'privacy.epsilon, privacy.epsilon': [[1, 2]]}}}}",
    "a section and a setting in it": f"{{{GRID} grid: {{privacy: [{{epsilon: 1}}], privacy.epsilon: [2]}}}}",
    "names": f"{{{GRID} grid: {{name: [a, b]}}}}",
    "folders": f"{{{GRID} grid: {{runs: [a, b]}}}}",
    "what is gone on with": f"{{{GRID} grid: {{resume: [true]}}}}",
    "a list": "[1, 2]",
    "a text": "text",
    "an unknown key": "{grids: {}}",
    "a grid of a list": "{grid: [1, 2]}",
    "a grid of a text": "{grid: text}",
    "a grid of numbers": "{grid: {1: [2]}}",
    "values that are none": "{grid: {privacy.epsilon: 3}}",
    "no values": "{grid: {privacy.epsilon: []}}",
    "values of another kind": "{grid: {privacy.epsilon: [[1]]}}",
    "values out of range": "{grid: {privacy.epsilon: [-1]}}",
    "an unknown setting": "{grid: {privacy.epsilom: [1]}}",
    "a setting inside a value": "{settings: {privacy: 3}, grid: {privacy.epsilon: [1]}}",
    "a setting below a setting": "{grid: {privacy.epsilon.x: [1]}}",
    "seeds that are null": "{seeds: [null]}",
    "some seeds that are null": "{seeds: [1, null]}",
    "seeds that are one": "{seeds: 3}",
    "seeds that are none": "{seeds: []}",
    "seeds below zero": "{seeds: [-1]}",
    "seeds that are text": "{seeds: [a]}",
    "seeds that are true": "{seeds: [true]}",
    "one value twice": "{grid: {privacy.epsilon: [1, 1]}}",
    "one value in two ways": "{grid: {model.start: [a/x, b/x]}}",
    "one seed twice": "{seeds: [1, 1]}",
    "more runs than anybody waits for": "{grid: {a: [1,2,3,4,5,6,7,8,9,0], b: [1,2,3,4,5,6,7,8,9,0], c: "
    "[1,2,3,4,5,6,7,8,9,0], d: [1,2,3,4,5,6,7,8,9,0], e: [1,2]}}",
    "several that do not fit": "{grid: {'privacy.epsilon, privacy.delta': [[1]]}}",
    "settings that are a number": "{settings: 3}",
    "settings that are numbers": "{settings: [3]}",
    "settings in no file": "{settings: none.yaml}",
    "settings in themselves": "{settings: [settings.yaml]}",
    "settings in a folder": "{settings: ..}",
    "a task unknown": "{settings: {task: tanslation}}",
    "a name too long": "{grid: {data.text: [" + "x" * 300 + "]}}",
}


def test_a_grid_of_a_thousand_runs_is_planned_in_a_moment(home):
    values = ",".join(str(value / 100) for value in range(1, 1001))
    grid = f"{{{GRID} grid: {{privacy.epsilon: [{values}]}}}}"
    assert (
        faults(home, Bad("many", ("sweep", "bad/g.yaml", "--dry-run"), {"bad/g.yaml": grid.encode()}, may_pass=True))
        == []
    )


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_of_the_wrong_shape_is_refused(home, name):
    files = {"bad/settings.yaml": GRIDS[name].encode()}
    refuse_all(home, [Bad(name, ("sweep", "bad/settings.yaml", "--dry-run"), files, says="bad/")])


LINES = {
    "nothing": b"",
    "blank lines": b"\n\n\n",
    "no JSON": b"text\n",
    "half a line": b'{"text": "a", "label": "x"}\n{"text": "b", "la',
    "a list a line": b"[1, 2]\n",
    "numbers": b"1\n2\n",
    "null": b"null\n",
    "no column": b'{"words": "a"}\n',
    "null for a text": b'{"text": null, "label": "x"}\n',
    "a number for a text": b'{"text": 3, "label": "x"}\n',
    "a list for a text": b'{"text": ["a"], "label": "x"}\n',
    "an object for a label": b'{"text": "a", "label": {"x": 1}}\n',
    "a list for a label": b'{"text": "a", "label": [1]}\n',
    "NaN for a label": b'{"text": "a", "label": NaN}\n',
    "half a character": b'{"text": "\\ud800", "label": "x"}\n' * 9,
    "no UTF-8": b'{"text": "\xff", "label": "x"}\n',
    "UTF-16": '{"text": "a", "label": "x"}\n'.encode("utf-16"),
    "zeros": bytes(100),
    "a deep line": b'{"text": ' + b"[" * 10**5 + b"\n",
    "a long number": b'{"text": "a", "label": ' + b"9" * 5000 + b"}\n",
    "a deep array": b"[" * 10**5,
    "a name twice": b'{"text": "a", "text": "b", "label": "x"}\n' * 20,
    "an array that does not end": b'[{"text": "a", "label": "x"}',
    "an array and more": b'[{"text": "a", "label": "x"}] more',
    "one label": b'{"text": "a", "label": "x"}\n' * 20,
}
TABLES = {
    "nothing": b"",
    "a header": b"text,label\n",
    "no header": b"1,2\n3,4\n",
    "a column twice": b"text,text\na,b\n",
    "a column twice among many": ",".join(["text", *(f"c{n}" for n in range(10**5)), "text"]).encode() + b"\n",
    "many columns": ",".join(f"c{n}" for n in range(10**5)).encode() + b"\n" + b"1," * 99_999 + b"1\n",
    "a quote that does not end": b'text,label\n"a,b\n',
    "another count": b"text,label\na,b,c\n",
    "a huge field": b"text,label\n" + b"a" * 10**6 + b",x\n",
    "a zero": b"text,label\n\0,x\n",
}
PACKED = {
    "a.jsonl.gz": b"no gzip",
    "b.jsonl.gz": b"\x1f\x8b\x08\x00" + bytes(20),
    "c.jsonl.xz": b"\xfd7zXZ\x00",
    "d.parquet": b"PAR1" + bytes(40) + b"PAR1",
    "e.parquet": b"",
    "f.tsv": b"text\tlabel\na\n",
    "g.unknown": b"a",
}
FILES = {
    **{f"{name}.jsonl": content for name, content in LINES.items()},
    **{f"{name}.csv": content for name, content in TABLES.items()},
    **PACKED,
}
READERS = (
    f"train {TRAIN.partition(' ')[2].replace('notes.jsonl', '{}')} {RUN}",
    REWRITE + " --data.train {} --data.label label --data.labels x y",
    "evaluate runs/run --data.test {}",
    "vocabulary --output new --data.train {} --privacy.epsilon 1 --data.owner label --privacy.delta 1e-3",
    "pretrain --method echo --output new --data.train {} --data.public --model.encoder start",
)


def unreadable():
    """Data that no verb reads, for each verb that reads some."""
    for name, content in FILES.items():
        place = f"bad/{name.replace(' ', '-')}"
        for line in READERS:
            if line.startswith("vocabulary") and name in ("one label.jsonl", "a zero.csv"):
                continue  # They can be read, and that no word comes out of them is known only once it is paid for.
            words = tuple(shlex.split(line.format(place)))
            yield Bad(f"{words[0]} {name}", words, {place: content}, may_pass=True)


def test_data_that_nobody_can_read_are_refused(home):
    cases = list(unreadable())
    refuse_all(home, cases if THOROUGH else sample(cases, 60))
