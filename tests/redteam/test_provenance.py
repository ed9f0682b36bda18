"""Provenance (laws 10 and 14): is there a way to use a private run, or what is in it, and not to pay for it?"""

import json
import math
import shutil
from dataclasses import replace

import pytest
from safetensors.numpy import load_file, save_file

from dpnlp.accounting import pld
from dpnlp.cli.training import Training
from dpnlp.data.plain import Text
from dpnlp.events import Composed, Gaussian
from dpnlp.guarantee import Adjacency, Exposure
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import Privacy
from dpnlp.runs.provenance import Door, Provenance

from ..cli.commands import run_in
from ..tasks.modellers import sentences, tokenizer, write_texts

DELTA = 1e-3
TRAIN = (
    "train --task modelling --data.train {data} --data.longest 8 --data.cache cache --learning.lot-size 4 "
    "--learning.physical-batch 8 --learning.steps 2 --privacy.delta 1e-3 --model.width 8 --model.hidden 12 "
    "--privacy.epsilon {epsilon} --name {name} --model.start {start}"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a public vocabulary and two sets of private texts."""
    home = tmp_path_factory.mktemp("home")
    tokenizer().save_pretrained(home / "words")
    for number in (1, 2):
        write_texts(home / f"{number}.jsonl", sentences(40, seed=number))
    for name in ("public", "notes"):  # Their texts are in no other file.
        write_texts(home / f"{name}.jsonl", [Text(f"{name} number{one} ba de bi", f"{one}") for one in range(40)])
    return home


@pytest.fixture(scope="module")
def trained(home):
    """Trains, and gives the run."""

    def train(name, start, epsilon=2, data="2.jsonl", flags=""):
        code, _, err = run_in(home, f"{TRAIN.format(name=name, start=start, epsilon=epsilon, data=data)} {flags}")
        return Run(home / "runs" / name) if code == 0 else err

    return train


@pytest.fixture(scope="module")
def first(trained):
    """A private run, whose cost whoever uses it has to bear."""
    return trained("first", "lstm --model.vocabulary words", data="1.jsonl", epsilon=3)


def together(*runs):
    """What the runs cost by themselves, composed."""
    events = tuple(run.privacy.own.event for run in runs)
    return pld.epsilon(Composed(events), DELTA, Adjacency.ADD_REMOVE)


def disguises(first, place):
    """Ways to hand over the run's model without its name."""
    place.mkdir()
    (place / "link").symlink_to(first.model)
    yield "a link", place / "link"
    yield "a path with dots", place / ".." / place.name / ".." / "runs" / "first" / "." / "model"
    yield "a copy", shutil.copytree(first.model, place / "copy")
    stripped = shutil.copytree(first.model, place / "stripped")
    for file in stripped.glob("prov*"):
        file.unlink()
    yield "a copy of the weights alone", stripped
    saved = shutil.copytree(stripped, place / "saved")
    save_file(load_file(saved / "model.safetensors"), saved / "model.safetensors", metadata={"format": "np"})
    yield "its weights, saved anew", saved


def test_whoever_starts_from_a_private_run_pays_for_it_under_whatever_name(home, first, trained, report):
    for number, (what, source) in enumerate(disguises(first, home / "places")):
        run = trained(f"on-{number}", source, flags="--model.public-start" if number % 2 else "")
        if number % 2:
            assert "dpnlp train first was made of private data" in run
            assert not (home / "runs" / f"on-{number}").exists()
            run = trained(f"on-{number}", source)
        report(f"started from {what}", run.guarantee.epsilon, together(first, run))


def test_a_run_in_a_chain_is_charged_as_its_ledger_has_it(home, first, trained, report):
    second = trained("second", first.path)
    third = trained("third", second.path)
    report("the third of a chain", third.guarantee.epsilon, together(first, second, third))
    assert [origin.what for origin in third.privacy.origins] == [
        f"dpnlp train {n}" for n in ("first", "second", "third")
    ]


def test_what_a_run_started_from_is_in_every_figure_of_its_costs(home, first, trained, report):
    flags = "--data.validation notes.jsonl --learning.evaluate-every 0.1"
    run = trained("figures", first.path, flags=flags)
    rows = run.metrics()
    assert [row["step"] for row in rows] == [0, 1, 2]
    steps = run.privacy.own.event
    for row, own in zip(rows, ((), (replace(steps, count=1),), (steps,)), strict=True):
        cost = pld.epsilon(Composed((first.privacy.own.event, *own)), DELTA, Adjacency.ADD_REMOVE)
        report(f"after {row['step']} steps on a private run", row["epsilon"], cost)
    assert rows[-1]["epsilon"] == run.guarantee.epsilon


def test_a_run_whose_texts_a_ledger_knows_to_be_private_is_not_said_to_be_public(home, trained):
    """Its cost would be lost: whoever starts from it would promise 1 where nothing at all is left of a promise."""
    vocabulary = "lstm --model.vocabulary words --model.public-start"
    promised = trained("promised", vocabulary, data="notes.jsonl")
    assert promised.guarantee.is_private
    lines = (home / "notes.jsonl").read_text().splitlines()
    (home / "shuffled.jsonl").write_text("\n".join(lines[::-1]) + "\n")
    for name, data in (("plainly", "notes.jsonl"), ("again", "shuffled.jsonl")):
        run = trained(name, vocabulary, epsilon=math.inf, data=data)
        copy = shutil.copytree(run.model, home / f"copy-of-{name}")
        for start in (run.path, copy):
            said = trained("lost", start, epsilon=1, flags="--model.public-start")
            assert "is a ledger of texts that it learned from, so they are private" in said
            assert not (home / "runs" / "lost").exists()
        assert not trained(f"on-{name}", run.path, epsilon=1).guarantee.is_private


def test_a_run_does_not_hide_what_the_public_start_has_learned(home, trained):
    """No ledger knows yet that the texts are private: the very run that says so starts from them."""
    own = [Text(f"own number{one} ba de bi", f"{one}") for one in range(40)]
    write_texts(home / "own.jsonl", own)
    write_texts(home / "own-reversed.jsonl", own[::-1])
    start = trained("own", "lstm --model.vocabulary words", epsilon=math.inf, data="own.jsonl")
    for data in ("own.jsonl", "own-reversed.jsonl"):
        said = trained("lost", start.path, epsilon=1, data=data, flags="--model.public-start")
        assert "many of its texts are in what the run starts from" in said
    assert not (home / "runs" / "lost").exists()


def test_what_texts_were_made_of_is_behind_a_model_that_learned_them_without_noise(home, first, trained):
    """Rewritten texts, and what a private model wrote, have cost something, which a run without privacy keeps."""
    made = "--data.train public.jsonl --data.public --model.width 4 --model.hidden 4 --learning.epochs 1"
    for line in (
        f"pretrain --method adept --output rewriter {made}",
        "rewrite --rewriter rewriter --name rewriting --data.train notes.jsonl --privacy.epsilon 5",
        f"generate {first.path} notes.jsonl --output answers.txt",
    ):
        code, _, err = run_in(home, line)
        assert code == 0, err
    shutil.copy(home / "runs" / "rewriting" / "rewritten" / "train.jsonl", home / "rewritten.jsonl")
    vocabulary = "lstm --model.vocabulary words --model.public-start"
    for name, data, whose in (
        ("of-texts", "rewritten.jsonl", "rewrite rewriting"),
        ("of-answers", "answers.txt", "train first"),
    ):
        run = trained(name, vocabulary, epsilon=math.inf, data=data)
        said = trained("lost", run.path, epsilon=1, flags="--model.public-start")
        assert f"dpnlp {whose} was made of private data" in said
    # With noise, a text that was rewritten by itself is one record; an answer is made of all the data of a run.
    assert trained("noisy-texts", vocabulary, data="rewritten.jsonl").guarantee.epsilon == 2
    noisy = trained("noisy-answers", vocabulary, data="answers.txt")
    assert noisy.guarantee.epsilon >= together(first, noisy)


def test_a_promise_that_was_edited_is_not_believed(home, first, trained):
    liar = shutil.copytree(first.path, home / "runs" / "liar")
    entry = json.loads((liar / "privacy.json").read_text())
    entry["guarantee"]["epsilon"] = 0.1
    promised = Run(first.path).guarantee.signature().split("|")
    entry["signature"] = "|".join(["eps:0.1", *promised[1:]])
    (liar / "privacy.json").write_text(json.dumps(entry))
    assert "what follows from its events is eps:" in trained("believing", liar)
    code, out, err = run_in(home, f"report {liar}")
    assert (code, out) == (2, "")
    assert "what follows from its events is eps:" in err
    # Another event, of which the claim does follow, is contradicted by what the machine remembers.
    entry["origins"][0]["event"] = {"event": "gaussian", "noise_multiplier": 500.0}
    entry["origins"][0]["guarantee"]["epsilon"] = 0.1
    entry["statement"] = ""
    (liar / "model" / "provenance.json").unlink()
    (liar / "privacy.json").write_text(json.dumps(entry))
    assert "restore" in trained("believing", liar)


def told(run, **changes):
    """A run says something else, all of which follows from an event, or from the same one."""
    own = run.privacy.own
    event = changes.pop("event", own.event)
    promised = replace(own.promised, **changes)
    entry = Privacy((replace(own, event=event, promised=promised),), run.privacy.plan, (run.id,)).to_json()
    (run.path / "privacy.json").write_text(json.dumps(entry))


LIES = (
    {"event": Gaussian(500.0), "epsilon": 0.1},
    {"not_covered": ()},
    {"adjacency": Adjacency.REPLACE, "epsilon": 9.0},
)


@pytest.mark.parametrize("lie", LIES, ids=["another event", "what is not covered", "other neighbours"])
@pytest.mark.parametrize("knows", ["the machine", "a file beside"])
def test_a_promise_that_was_edited_with_its_event_is_not_shown(home, first, lie, knows, monkeypatch, tmp_path):
    """This machine remembers what the run promised, and elsewhere provenance.json beside its model tells."""
    liar = Run(shutil.copytree(first.path, tmp_path / "liar"))
    told(liar, **lie)
    if knows == "the machine":
        (liar.model / "provenance.json").unlink()
    else:
        monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "elsewhere"))
    code, out, err = run_in(home, f"report {liar.path}")
    assert (code, out) == (2, "")
    assert "otherwise" in err


def test_a_run_with_the_model_of_another_run_promises_nothing_of_it(home, first, trained, tmp_path):
    other = trained("other", "lstm --model.vocabulary words", epsilon=9)
    exchanged = shutil.copytree(first.path, tmp_path / "exchanged")
    shutil.rmtree(exchanged / "model")
    shutil.copytree(other.model, exchanged / "model")
    for command in ("report", "evaluate"):
        code, _, err = run_in(home, f"{command} {exchanged}")
        assert (code, "model/provenance.json says otherwise" in err) == (2, True), err


def test_a_run_that_was_stopped_goes_on_from_the_run_of_public_data_that_it_began_with(home, trained):
    """Else nothing would tell what its weights have learned from."""
    start = trained("start", f"lstm --model.vocabulary {home / 'words'}", epsilon=math.inf, data="public.jsonl")
    run = trained("halted", start.path, flags="--keep-checkpoints --model.public-start")
    shutil.rmtree(run.model)
    (home / "state.json").unlink(missing_ok=True)
    line = TRAIN.format(name="halted", start=f"lstm --model.vocabulary {home / 'words'}", epsilon=2, data="2.jsonl")
    code, _, err = run_in(home, f"{line} --resume")
    assert code == 2
    assert "made_of = []: the run in" in err, err


def test_a_run_that_was_stopped_goes_on_from_the_start_that_it_began_with(home, first, trained):
    """Else it would forget what its weights have cost."""
    run = trained("stopped", first.path, flags="--keep-checkpoints")
    shutil.rmtree(run.model)
    (home / "state.json").unlink(missing_ok=True)
    public = shutil.copytree(home / "words", home / "public-words")
    line = TRAIN.format(name="stopped", start=f"lstm --model.vocabulary {public}", epsilon=2, data="2.jsonl")
    code, _, err = run_in(home, f"{line} --resume --model.public-start")
    assert code == 2
    assert "the run started from dpnlp train first, and these settings from public things alone" in err
    # Neither does it help to take the first run out of what the run promises: its checkpoints know better.
    own = replace(run.privacy.own, promised=replace(run.privacy.own.promised, not_covered=()))
    run.write_privacy(Privacy((own,), run.privacy.plan))
    code, _, err = run_in(home, f"{line} --resume --model.public-start")
    assert (code, "made_of = " in err) == (2, True)
    (run.path / "privacy.json").unlink()
    code, _, err = run_in(home, f"{line} --resume --model.public-start")
    assert (code, "privacy.json: it is missing" in err) == (2, True)


def test_a_run_that_goes_on_with_other_settings_names_what_it_has_named(home, trained, monkeypatch):
    """What is known of its start, and what it was scored on, is not undone by settings that no longer say so."""
    write_texts(home / "test.jsonl", sentences(6, seed=9))
    line = TRAIN.format(name="named", start="lstm --model.vocabulary words", epsilon=2, data="2.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_publish_all", interrupt)
        assert run_in(home, f"{line} --data.test test.jsonl")[0] == 130
    code, _, err = run_in(home, f"{line} --resume --model.public-start")
    assert code == 0, err
    assert {*Run(home / "runs" / "named").guarantee.not_covered} >= {Exposure.ORIGIN, Exposure.HELD_OUT}


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_vocabulary_of_private_texts_is_paid_for_by_whoever_has_its_words(home, trained, report):
    made = "--data.train 1.jsonl --privacy.unit example --privacy.epsilon 60 --privacy.delta 1e-4 --words 12"
    code, _, err = run_in(home, f"vocabulary --output made {made}")
    assert code == 0, err
    (home / "only").mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(home / "made" / file, home / "only")
    for name, folder in (("worded", "made"), ("worded-too", "only")):
        run = trained(name, f"lstm --model.vocabulary {folder}")
        own = Run(home / "made").privacy.own.event
        cost = pld.epsilon(Composed((own, run.privacy.own.event)), DELTA, Adjacency.ADD_REMOVE)
        report(f"the words of {folder}", run.guarantee.epsilon, cost)


def test_a_start_of_which_nothing_is_known_is_named(home, trained, tmp_path, monkeypatch):
    """As on another machine, where a copy of the bare weights cannot be recognised."""
    run = trained("known", "lstm --model.vocabulary words --model.public-start", epsilon=math.inf)
    bare = shutil.copytree(run.model, home / "bare")
    (bare / "provenance.json").unlink()
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "elsewhere"))
    assert Exposure.ORIGIN in trained("unknown", bare).guarantee.not_covered
    assert Exposure.ORIGIN not in trained("said", bare, flags="--model.public-start").guarantee.not_covered


def test_what_the_door_hands_over_in_python_says_what_it_cost(first):
    door = Door()
    door.open(str, first.path)
    assert door.provenance == Provenance(first.privacy.origins, learned_from=(first.id,))
