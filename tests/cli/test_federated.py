"""`dpnlp train` by federated averaging, run as a person runs it, on micro models and made-up words."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpnlp.accounting import pld
from dpnlp.accounting.ledger import Ledger
from dpnlp.events import Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Guarantee

from ..tasks.readers import encoder, labelled, write_labelled
from ..tasks.translators import saved, sentences, write_pairs

TRANSLATION = "--data.train train.jsonl --data.test test.jsonl --data.source de --data.target en --data.longest 16"
TRANSLATION += " --model.start start --scoring.beams 1"
SMALL = "--data.cache cache --data.owner who --learning.lot-size 4 --learning.physical-batch 8 --learning.steps 3"
SMALL += " --privacy.delta 1e-3 --privacy.seed 0 --privacy.epsilon 4 --privacy.unit user"
SERVER = "--learning.optimizer sgd --learning.rate 1 --learning.decay constant"
ROUNDS = f"--federated.local-epochs 2 --federated.local-batch 2 {SERVER}"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with small models, 40 private pairs and 20 private labelled texts of some owners, and 6 to test on."""
    home = tmp_path_factory.mktemp("home")
    saved(home / "start")
    encoder(home / "reader")
    write_pairs(home / "train.jsonl", sentences(40, seed=1))
    write_pairs(home / "test.jsonl", sentences(6, seed=2))
    for name, count, seed in (("labelled", 20, 1), ("labelled-test", 6, 2)):
        write_labelled(home / f"{name}.jsonl", labelled(count, seed))
        lines = [json.loads(line) for line in (home / f"{name}.jsonl").read_text().splitlines()]
        owned = [{**line, "who": f"user {number % 5}"} for number, line in enumerate(lines)]
        (home / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in owned))
    return home


def command(name, flags=ROUNDS):
    return f"train --name {name} {TRANSLATION} {SMALL} {flags}"


def privacy(home, name):
    return json.loads((home / "runs" / name / "privacy.json").read_text())


def model_of(home, name):
    return load_file(home / "runs" / name / "model" / "model.safetensors")


def test_rounds_of_users_are_promised_charged_and_reported_by_name(home, dpnlp):
    code, out, err = dpnlp(command("rounds"))
    assert (code, err.count("note")) == (0, 0)
    entry = privacy(home, "rounds")
    promised, plan = Guarantee.from_json(entry["guarantee"]), entry["plan"]
    assert (promised.unit, promised.mechanism.name) == ("user", "federated-averaging")
    assert plan["schedule"]["records"] == 8
    assert plan["contribution"]["local"] == {"rate": 0.1, "epochs": 2, "batch": 2}
    event = Repeated(PoissonSampled(4 / 8, Gaussian(plan["noise_multiplier"])), 3)
    assert promised.epsilon == pytest.approx(pld.epsilon(event, 1e-3, Adjacency.ADD_REMOVE), abs=1e-3)
    assert "federated-averaging" in (home / "runs" / "rounds" / "report.html").read_text()
    assert "federated-averaging(" in out
    (release,) = Ledger.beside(home / "train.jsonl").read().releases
    assert release.what == "dpnlp train rounds by federated-averaging"
    assert release.event == event


def test_what_users_contribute_makes_another_model_than_dp_sgd(home, dpnlp):
    others = {"sgd-user": SERVER, "adaptive": f"{ROUNDS} --federated.quantile 0.5 --federated.estimator clipped"}
    for name, flags in others.items():
        assert dpnlp(command(name, f"{flags} --privacy.ledger {name}.ledger"))[0] == 0
    assert str(privacy(home, "sgd-user")["guarantee"]["mechanism"]).startswith("gaussian(")
    assert "estimator=clipped,quantile=0.5" in privacy(home, "adaptive")["guarantee"]["mechanism"]
    first, *rest = (model_of(home, name) for name in ("rounds", *others))
    assert all(any(not np.array_equal(first[key], other[key]) for key in first) for other in rest)


def test_readers_learn_in_rounds_too_and_with_noise_in_bands(home, dpnlp):
    files = "--data.train labelled.jsonl --data.test labelled-test.jsonl --data.longest 16 --model.start reader"
    line = f"train --task classification --name reader {files} {SMALL} {ROUNDS} --learning.lot-size 2"
    assert dpnlp(f"{line} --privacy.sampling cyclic --privacy.bands 3 --learning.steps 4")[0] == 0
    entry = privacy(home, "reader")
    assert entry["guarantee"]["sampler"] == "cyclic(groups=3,bands=3)"
    assert entry["origins"][0]["event"]["count"] == 2


def test_momentum_of_the_server_is_a_setting(home, dpnlp):
    line = command("momentum", f"{ROUNDS} --learning.momentum 0.9 --privacy.ledger momentum.ledger")
    assert dpnlp(line)[0] == 0
    plain, found = (model_of(home, name) for name in ("rounds", "momentum"))
    assert any(not np.array_equal(plain[key], found[key]) for key in plain)


REFUSALS = {
    "another unit": (
        "--federated.local-epochs 2 --privacy.unit document",
        "--federated.local-epochs = 2: federated averaging is for users, and the unit is one document; choose "
        "--privacy.unit user.",
    ),
    "settings of rounds without rounds": (
        "--federated.quantile 0.5",
        "--federated.quantile = 0.5: it is for federated averaging; give --federated.local-epochs, too.",
    ),
    "a count without a quantile": (
        "--federated.local-epochs 1 --federated.count-noise 3",
        "quantile is not given: the clip norm stays as it is, and nothing is counted; give one.",
    ),
    "no local training": (
        "--federated.local-epochs -1",
        "--federated.local-epochs = -1: it must be a whole number from 0 to 1,024.",
    ),
    "a local batch of none": (
        "--federated.local-epochs 1 --federated.local-batch 0",
        "--federated.local-batch = 0: it must be a whole number from 1 to 1,048,576.",
    ),
    "a count with too little noise": (
        "--federated.local-epochs 1 --federated.quantile 0.5 --federated.count-noise 0.1",
        "--federated.count-noise = 0.1: it must be more than half of the noise multiplier",
    ),
    "a quantile of unclipped updates": (
        "--federated.local-epochs 1 --federated.quantile 0.5 --privacy.epsilon inf",
        "--privacy.clip-norm = inf: one that follows a quantile has to start somewhere; give one.",
    ),
    "bands of Poisson lots": ("--privacy.bands 2", "--privacy.bands = 2: only cyclic-poisson and cyclic sampling have"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, home, dpnlp):
    flags, sentence = REFUSALS[case]
    code, _, err = dpnlp(command("bad", flags))
    assert (code, err.count("\n")) == (2, 1)
    assert sentence in err
    assert not (home / "runs" / "bad").exists()


def test_law_7_rounds_that_were_interrupted_go_on_to_the_same_model(home, dpnlp, monkeypatch):
    flags = f"{ROUNDS} --federated.quantile 0.5 --learning.steps 5"
    after_two = iter([False, True])
    with monkeypatch.context() as patched:
        patched.setattr("dpnlp.cli.training.interruptible", lambda: nullcontext(lambda: next(after_two)))
        code, _, err = dpnlp(command("stopped", f"{flags} --privacy.ledger stopped.ledger"))
    assert code == 130
    assert "Go on with: dpnlp train runs/stopped/config.yaml --resume" in err
    assert dpnlp("train runs/stopped/config.yaml --resume")[0] == 0
    assert dpnlp(command("whole", f"{flags} --privacy.ledger whole.ledger"))[0] == 0
    first, again = (model_of(home, name) for name in ("stopped", "whole"))
    assert all(np.array_equal(first[key], again[key]) for key in first)
