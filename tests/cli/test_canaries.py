"""`dpnlp train --audit.canaries`, run as a person runs it, for every task of texts, on micro models."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpnlp.accounting import pld
from dpnlp.accounting.ledger import Ledger
from dpnlp.audit import canaries
from dpnlp.audit.canaries import Canaries, Found
from dpnlp.audit.membership import Membership
from dpnlp.cli import canaries as wiring
from dpnlp.events import Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms.randomness import OS_ENTROPY, seeded
from dpnlp.runs.folder import Run
from dpnlp.runs.page import page_of_run
from dpnlp.training import Secret

from ..tasks import modellers, translators
from ..tasks.readers import encoder, labelled, questions, tagged, write_labelled, write_questions, write_tagged
from .interrupted import interrupted

COUNT = 40  # records of each task
SMALL = "--data.cache cache --learning.lot-size 8 --learning.physical-batch 8 --learning.steps 2 --privacy.delta 1e-3"
SMALL += " --privacy.seed 0 --learning.lengths 32 --data.longest 32"
TASKS = {
    "translation": "--data.train pairs.jsonl --data.source de --data.target en --data.owner who --model.start start "
    "--scoring.beams 1",
    "modelling": "--data.train texts.jsonl --data.owner who --model.start lstm --model.vocabulary words "
    "--model.width 8 --model.hidden 12",
    "classification": "--data.train labelled.jsonl --data.pair pair --data.owner who --model.start bert",
    "tagging": "--data.train tagged.jsonl --model.start bert --model.strategy tr-no",
    "answering": "--data.train questions.jsonl --model.start bert --data.stride 8",
}
WRITES = ("translation", "modelling")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with small models, and 40 private records for each task."""
    home = tmp_path_factory.mktemp("home")
    translators.saved(home / "start")
    translators.write_pairs(home / "pairs.jsonl", translators.sentences(COUNT, seed=1))
    modellers.tokenizer().save_pretrained(home / "words")
    modellers.write_texts(home / "texts.jsonl", modellers.sentences(COUNT, seed=1, owners=12))
    encoder(home / "bert")
    write_labelled(home / "labelled.jsonl", labelled(COUNT, 1, pairs=True))
    write_tagged(home / "tagged.jsonl", tagged(COUNT, 1))
    write_questions(home / "questions.jsonl", questions(COUNT, 1))
    return home


def command(task, name, flags="--privacy.epsilon 4"):
    return f"train --task {task} --name {name} {TASKS[task]} {SMALL} {flags}"


@pytest.fixture(scope="module")
def made(home, dpnlp):
    """A private run of a task with 20 canaries, made when it is first asked for."""

    def run(task):
        if not (home / "runs" / task).exists():
            code, _, err = dpnlp(command(task, task, "--privacy.epsilon 4 --audit.canaries 20"))
            assert code == 0, err
        return Run.open(home / "runs" / task)

    return run


@pytest.mark.parametrize("task", TASKS)
def test_canaries_are_records_like_any_other_in_the_plan_the_events_the_ledger_and_the_statement(task, made, home):
    run = made(task)
    kept = Canaries.from_json(run.canaries())
    records = COUNT + int(kept.put_in.sum())
    assert len(kept) == 20
    assert 0 < kept.put_in.sum() < 20
    assert run.privacy.plan["schedule"]["records"] == records
    assert run.privacy.own.event.event.q == 8 / records
    event = Repeated(PoissonSampled(8 / records, Gaussian(run.privacy.plan["noise_multiplier"])), 2)
    assert run.guarantee.epsilon == pytest.approx(pld.epsilon(event, 1e-3, Adjacency.ADD_REMOVE), abs=1e-3)
    file = re.search(r"\S+\.jsonl", TASKS[task])[0]
    assert Ledger.beside(home / file).read().releases[0].event == event
    assert run.guarantee.canaries == 20
    assert "|canaries:20|" in run.guarantee.signature()
    assert "Canaries: 20 records were made up" in run.guarantee.statement()


@pytest.mark.parametrize("task", TASKS)
def test_what_was_found_stands_in_the_json_and_on_the_page_beside_the_claim(task, made):
    run = made(task)
    found = run.audit()["canaries"]
    assert (found["canaries"], found["claimed"], found["delta"]) == (20, run.guarantee.epsilon, 1e-3)
    assert [score["score"] for score in found["scores"]] == ["loss", "movement"]
    assert found["above"] <= found["claimed"]
    assert (found["written"] is not None) is (task in WRITES)
    page = run.report.read_text()
    for words in ("Canaries", "shown by canaries, with 95 % confidence", "proves nothing", "Canaries: 20 records"):
        assert words in page
    assert "The claim is refuted" not in page


def test_a_run_without_canaries_says_nothing_of_them(home, dpnlp):
    code, _, err = dpnlp(command("modelling", "plain"))
    assert code == 0, err
    run = Run.open(home / "runs" / "plain")
    assert (run.canaries(), run.audit(), run.guarantee.canaries) == (None, {}, 0)
    assert "anaries" not in run.guarantee.statement()
    assert run.privacy.plan["schedule"]["records"] == COUNT


def test_each_canary_is_an_owner_of_its_own(home, dpnlp):
    flags = "--privacy.epsilon 4 --privacy.unit user --audit.canaries 10"
    code, _, err = dpnlp(command("modelling", "users", flags))
    assert code == 0, err
    run = Run.open(home / "runs" / "users")
    put_in = Canaries.from_json(run.canaries()).put_in
    assert run.privacy.plan["schedule"]["records"] == 12 + put_in.sum()


def test_users_that_train_by_themselves_have_canaries_among_them(home, dpnlp):
    rounds = "--federated.local-epochs 1 --learning.optimizer sgd --learning.rate 1 --learning.decay constant"
    flags = f"--privacy.epsilon 4 --privacy.unit user --audit.canaries 10 {rounds}"
    code, _, err = dpnlp(command("modelling", "rounds", flags))
    assert code == 0, err
    assert Run.open(home / "runs" / "rounds").audit()["canaries"]["canaries"] == 10


def test_coins_decide_what_is_trained_on(made, home, dpnlp, monkeypatch):
    """With all coins turned the model is another one, by the same seed."""
    first, drawn = made("modelling"), Canaries.drawn.__func__

    def turned(cls, *arguments):
        return cls(canary._replace(put_in=not canary.put_in) for canary in drawn(cls, *arguments))

    monkeypatch.setattr(Canaries, "drawn", classmethod(turned))
    assert dpnlp(command("modelling", "turned", "--privacy.epsilon 4 --audit.canaries 20"))[0] == 0
    other = Run.open(home / "runs" / "turned")
    kept = [Canaries.from_json(run.canaries()) for run in (first, other)]
    assert [canary.words for canary in kept[0]] == [canary.words for canary in kept[1]]
    assert (kept[0].put_in == ~kept[1].put_in).all()
    weights = [load_file(run.model / "model.safetensors") for run in (first, other)]
    assert not all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_coins_come_from_elsewhere_than_the_noise():
    """A seeded run draws them from a place of their own; without a seed they are the operating system's."""
    asked = SimpleNamespace(privacy=SimpleNamespace(seed=7))
    assert wiring._source(asked).bytes(32) != Secret.drawn(seeded(7)).value
    asked.privacy.seed = None
    assert wiring._source(asked) is OS_ENTROPY


def test_no_score_knows_the_coins(made, home, monkeypatch, dpnlp):
    """Whoever scores is given the canaries as they are, whether they were put in or not."""
    given = []

    def seen(start, trained, trains, loss, examples, longest, **more):
        given.append(len(examples))
        return {"loss": np.arange(20.0), "movement": np.zeros(20)}

    monkeypatch.setattr(canaries, "scores", seen)
    line = command("modelling", "scored", "--privacy.epsilon 4 --audit.canaries 20")
    assert dpnlp(line)[0] == 0
    assert given == [20]
    run = Run.open(home / "runs" / "scored")
    coins = Canaries.from_json(run.canaries()).put_in
    told = Membership("loss", np.arange(20.0), coins).auc
    assert [score["auc"] for score in run.audit()["canaries"]["scores"]] == [told, 0.5]


def test_a_run_that_was_stopped_goes_on_with_its_own_canaries_to_the_same_model(home, dpnlp):
    flags = "--privacy.epsilon 4 --audit.canaries 20 --learning.steps 40 --learning.checkpoint-every 1000"
    long = command("modelling", "stopped", flags).replace(" --learning.steps 2 ", " ")
    interrupted(home, long, "stopped")
    run = Run.open(home / "runs" / "stopped")
    before = run.canaries()
    assert dpnlp("train runs/stopped/config.yaml --resume")[0] == 0
    assert run.canaries() == before
    assert dpnlp(long.replace("stopped", "whole") + " --privacy.ledger whole.ledger")[0] == 0
    first, again = (load_file(home / "runs" / name / "model" / "model.safetensors") for name in ("stopped", "whole"))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert Run.open(home / "runs" / "whole").audit() == run.audit()


@pytest.fixture(scope="module")
def begun(home, dpnlp):
    """A run with 10 canaries that lost its model, so that it can be gone on with."""
    assert dpnlp(command("modelling", "begun", "--privacy.epsilon 4 --audit.canaries 10 --keep-checkpoints"))[0] == 0
    shutil.rmtree(home / "runs" / "begun" / "model")
    return home / "runs" / "begun"


@pytest.mark.parametrize(
    ("flags", "lost", "sentence"),
    [
        ("--audit.canaries 12", False, "audit.canaries = 12: the run in runs/begun began with 10; go on with as many."),
        ("--audit.canaries 0", False, "audit.canaries = 0: the run in runs/begun began with 10; go on with as many."),
        ("", True, "audit.canaries = 10: the run in runs/begun has no canaries.json"),
    ],
)
def test_a_run_goes_on_with_no_other_canaries(begun, dpnlp, flags, lost, sentence):
    kept = (begun / "canaries.json").read_text()
    if lost:
        (begun / "canaries.json").unlink()
    try:
        code, _, err = dpnlp(f"train runs/begun/config.yaml --resume {flags}")
    finally:
        (begun / "canaries.json").write_text(kept)
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--audit.canaries -1", "--audit.canaries = -1: it must be a whole number from 0 to 1e12."),
        ("--audit.canaries 9", "audit.canaries = 9: with fewer than 10 no test says anything; ask for more"),
        ("--audit.canaries 81", "audit.canaries = 81: half of them are put in, and there are only 40 other records"),
        ("--audit.canaries many", "audit.canaries"),
    ],
)
def test_bad_numbers_are_refused_in_a_sentence(home, dpnlp, flags, sentence):
    code, _, err = dpnlp(command("modelling", "bad", f"--privacy.epsilon 4 {flags}"))
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert not (home / "runs" / "bad").exists()


def test_a_graph_has_no_canaries(home, dpnlp):
    rows = [{"id": str(n), "text": f"word{n}", "label": "ab"[n % 2]} for n in range(12)]
    (home / "nodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "edges.tsv").write_text("0\t1\n2\t3\n")
    files = "--data.texts nodes.jsonl --data.edges edges.tsv --data.labels a b"
    code, _, err = dpnlp(f"train --task nodes --name graph {files} --audit.canaries 10 --privacy.delta 1e-3")
    assert code == 2
    assert "audit.canaries = 10: a made-up node would have edges to others" in err


def test_many_canaries_are_warned_of(home, dpnlp):
    code, _, err = dpnlp(command("modelling", "many", "--privacy.epsilon 4 --audit.canaries 30"))
    assert code == 0
    assert "audit.canaries = 30: about 15 made-up records are put among 40" in err


def test_a_run_without_privacy_reports_a_bound_and_has_no_claim(home, dpnlp):
    code, out, err = dpnlp(command("modelling", "open", "--privacy.epsilon inf --audit.canaries 20 --json"))
    assert code == 0, err
    found = json.loads(out)["audit"]["canaries"]
    assert (found["claimed"], found["refuted"]) == ("inf", False)
    assert "Nothing is claimed" in Run.open(home / "runs" / "open").report.read_text()


def test_a_claim_that_is_refuted_is_said_loudly(made, home, dpnlp, monkeypatch):
    """Scores that know the coins stand for a training that gives its records away."""

    def knowing(self, trained):
        coins = self.canaries.put_in
        return Found(self.canaries, {"loss": coins + np.linspace(0, 0.5, len(coins))})

    monkeypatch.setattr(wiring.Planted, "found", knowing)
    code, out, err = dpnlp(command("modelling", "broken", "--privacy.epsilon 0.1 --audit.canaries 60"))
    assert code == 3
    assert "THE CLAIM IS REFUTED" in out
    assert "THE CLAIM IS REFUTED" in err
    run = Run.open(home / "runs" / "broken")
    page = run.report.read_text()
    assert page.index("The claim is refuted.") < page.index("ε ≤ ")
    assert run.audit()["canaries"]["refuted"]


def test_an_earlier_run_s_canaries_are_named_too(made, home, dpnlp):
    made("modelling")
    line = command("modelling", "later", "--privacy.epsilon 3 --audit.canaries 12")
    code, _, err = dpnlp(line.replace("--model.start lstm --model.vocabulary words", "--model.start runs/modelling"))
    assert code == 0, err
    run = Run.open(home / "runs" / "later")
    assert run.guarantee.canaries == 32
    assert run.audit()["canaries"]["claimed"] < run.guarantee.epsilon  # that of this run alone
    assert "32 records were made up" in page_of_run(run)


def test_no_training_record_is_a_canary(home, dpnlp, made):
    """The same seed makes up the same canaries, one of which is among the private texts the second time."""
    canary = made("modelling").canaries()["canaries"][0]
    text = {"text": " ".join(canary["words"]), "who": "somebody"}
    own = (home / "texts.jsonl").read_text() + json.dumps(text) + "\n"
    (home / "unlucky.jsonl").write_text(own)
    line = command("modelling", "unlucky", "--privacy.epsilon 4 --audit.canaries 20")
    code, _, err = dpnlp(line.replace("--data.train texts.jsonl", "--data.train unlucky.jsonl"))
    assert code == 2
    assert "a record that was made up is one of the training records by chance" in err
    assert not (home / "runs" / "unlucky").exists()
