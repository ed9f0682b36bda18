"""The folder of a run: what is written comes back, whole files or none, one sentence for what goes wrong."""

import errno
import json
import math
import os
import threading
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.events import Gaussian, PoissonSampled, Repeated
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, Term, Trust, Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import Origin, Privacy

PROMISED = Guarantee(
    4.9998,
    1e-8,
    Unit.EXAMPLE,
    Adjacency.ADD_REMOVE,
    Trust.CENTRAL,
    Term.of("gaussian", sigma=1.998),
    Term.of("poisson", q=0.0929),
    Term("pld"),
    275,
    not_covered=(Exposure.VALIDATION,),
)

ORIGIN = Origin(
    "0123456789abcdef", "dpnlp train first", Repeated(PoissonSampled(2048 / 22_051, Gaussian(1.998)), 275), PROMISED
)

SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "runs" / "first", {"model": "t5-small", "privacy": {"epsilon": 5}}, "dpnlp train")


def names(run):
    return sorted(path.name for path in run.path.iterdir())


@given(st.dictionaries(st.text(), SETTINGS, max_size=4))
def test_a_config_comes_back_as_it_was_given(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("runs") / "a"
    Run.create(path, config, "dpnlp train")
    assert Run.open(path).config == config


@given(st.text())
def test_no_command_can_change_the_config(tmp_path_factory, command):
    path = tmp_path_factory.mktemp("runs") / "a"
    Run.create(path, {"seed": 1}, command)
    assert yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8")) == {"seed": 1}


def test_the_command_that_began_a_run(run):
    assert Run.open(run.path).command == "dpnlp train"
    (run.path / "config.yaml").write_text("seed: 1\n")
    assert Run.open(run.path).command == ""


def test_the_guarantee_comes_back(run):
    run.write_privacy(Privacy((ORIGIN,), {"noise_multiplier": 1.998}))
    read = Run.open(run.path)
    assert read.guarantee == PROMISED
    assert read.privacy == Privacy((ORIGIN,), {"noise_multiplier": 1.998})
    assert read.id == ORIGIN.run
    nothing = replace(PROMISED, epsilon=math.inf)
    run.write_privacy(Privacy((replace(ORIGIN, promised=nothing),)))
    assert run.guarantee == nothing
    assert run.privacy.earlier == ()


def test_metrics_are_written_anew_each_time(run):
    rows = [{"step": 0, "epsilon": 0.0, "split": "validation", "bleu": 1.5}]
    run.write_metrics(rows)
    rows.append({"step": 9, "epsilon": math.inf, "split": "test", "bleu": 21.0, "bleu_signature": "nrefs:1"})
    run.write_metrics(rows)
    run.write_metrics(rows)
    assert run.metrics() == rows
    assert json.loads((run.path / "metrics.jsonl").read_text().splitlines()[1])["epsilon"] == "inf"


def test_predictions_come_back_by_split(run):
    rows = [{"source": "Guten\u2028Tag\n", "reference": "Good day", "hypothesis": "Good", "before": ""}]
    run.write_predictions("validation", rows)
    run.write_predictions("test_2017", [])
    assert run.splits() == ["test_2017", "validation"]
    assert run.predictions("validation") == rows
    assert run.predictions("test_2017") == run.predictions("never_written") == []


@pytest.mark.parametrize("split", ["train", "Training", "../config", "a/b", ""])
def test_training_sentences_and_paths_are_no_split(run, split):
    with pytest.raises(BadInput, match="it must be validation, test or another name of data held out"):
        run.write_predictions(split, [])


def test_what_was_not_measured_is_not_there(run):
    assert (run.metrics(), run.splits(), run.audit(), run.audit(covered=False)) == ([], [], {}, {})
    with pytest.raises(BadInput, match=r"privacy\.json: it is missing, so nothing is known of what this run promises"):
        _ = run.guarantee


def test_audits_come_back_one_beside_the_other(run):
    secrets = {"secrets": [{"text": "4 7 1", "exposure": 12.0, "rank": 1, "candidates": 4096}], "note": "planted"}
    for attack, found in (("secrets", {"secrets": []}), ("canaries", {"planted": 8}), ("secrets", secrets)):
        run.add_audit(attack, found)
    assert run.audit() == {"secrets": secrets, "canaries": {"planted": 8}}
    assert names(run) == ["audit.json", "config.yaml"]


def test_what_looked_at_the_training_set_lies_apart(run):
    run.add_audit("canaries", {"planted": 8})
    covered = (run.path / "audit.json").read_bytes()
    run.add_audit("membership", {"auc": 0.9})
    run.add_audit("extraction", {"share": 0.1})
    run.write_audit_report("<p>")
    assert (run.path / "audit.json").read_bytes() == covered
    found = run.audit(covered=False)
    assert {name: said.pop("not_covered").partition(",")[0] for name, said in found.items()} == dict.fromkeys(
        ("membership", "extraction"), "This audit has looked at the training set"
    )
    assert found == {"membership": {"auc": 0.9}, "extraction": {"share": 0.1}}
    assert names(run) == ["audit.json", "config.yaml", "not-covered"]
    assert sorted(path.name for path in (run.path / "not-covered").iterdir()) == ["audit.html", "audit.json"]
    assert (run.path / "not-covered").stat().st_mode & 0o077 == 0


def test_an_attack_has_a_known_name(run):
    with pytest.raises(BadInput, match="attack = mebership: it must be one of secrets, canaries"):
        run.add_audit("mebership", {})


def test_a_name_is_given_once(run):
    before = (run.path / "config.yaml").read_bytes()
    with pytest.raises(BadInput, match="a run of this name exists already; choose another with --name, or continue"):
        Run.create(run.path, {}, "dpnlp train")
    assert (run.path / "config.yaml").read_bytes() == before
    assert names(run) == ["config.yaml"]


def test_of_many_that_want_a_name_at_once_one_gets_it(tmp_path):
    barrier, outcomes = threading.Barrier(8), []

    def begin(number):
        barrier.wait()
        try:
            Run.create(tmp_path / "run", {"number": number}, "dpnlp train")
            outcomes.append(number)
        except BadInput:
            pass

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [Run.open(tmp_path / "run").config["number"]] == outcomes
    assert names(Run(tmp_path / "run")) == ["config.yaml"]


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    run = Run.create(tmp_path / "run", {"seed": 1}, "dpnlp train")
    assert run.config == {"seed": 1}
    with pytest.raises(BadInput, match="a run of this name exists already"):
        Run.create(tmp_path / "run", {"seed": 2}, "dpnlp train")
    assert names(run) == ["config.yaml"]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match=r"there is thesis\.tex in it already; choose another name with --name"):
        Run.create(tmp_path, {}, "dpnlp train")
    with pytest.raises(BadInput, match=r"it is not the folder of a run, for it has no config\.yaml"):
        Run.open(tmp_path)
    with pytest.raises(BadInput, match="there is no such folder; give the folder of a run"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="there is no run in this folder"):
        Run.find(tmp_path)


def test_runs_are_found_in_a_folder_of_runs(run):
    second = Run.create(run.path.parent / "grid" / "second", {}, "dpnlp train")
    assert [found.path for found in Run.find(run.path.parent)] == [run.path, second.path]
    assert [found.path for found in Run.find(run.path)] == [run.path]


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(run, monkeypatch):
    run.write_metrics([{"step": 1}])

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        BadInput, match=r"metrics\.jsonl: it cannot be written \(No space left on device\); make room on"
    ):
        run.write_metrics([{"step": 1}, {"step": 2}])
    assert run.metrics() == [{"step": 1}]
    assert names(run) == ["config.yaml", "metrics.jsonl"]


def test_a_folder_that_vanished_is_one_sentence(run):
    run.path.rename(run.path.with_name("elsewhere"))
    for write in (lambda: run.write_metrics([]), lambda: run.write_predictions("test", [])):
        with pytest.raises(BadInput, match="the folder has vanished; put it back, or begin another run"):
            write()


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("config.yaml", "a: [", r"config\.yaml: it is not valid YAML; correct it near line 1"),
        ("config.yaml", "- a", r"config\.yaml: it must hold settings as key: value"),
        ("privacy.json", "{", r"privacy\.json: it is not valid JSON; restore the file that the run wrote"),
        ("privacy.json", "{}", r"privacy\.json: version = None: this dpnlp reads version 2; restore the file"),
        ("metrics.jsonl", '{"step": 1}\n\n{"ste', r"metrics\.jsonl, line 3: it is not valid JSON"),
        ("metrics.jsonl", "7\n", r"metrics\.jsonl, line 1: it must be a JSON object"),
        ("audit.json", "\udcff", r"audit\.json: it is not text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(run, file, text, sentence):
    (run.path / file).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInput, match=sentence):
        _ = (run.config, run.metrics(), run.audit(), run.guarantee)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [({"bleu": math.nan}, "a figure in it is nan"), ({"hypothesis": "\ud800"}, "half of a character")],
)
def test_what_no_file_can_hold_is_refused(run, row, sentence):
    with pytest.raises(BadInput, match=sentence):
        run.write_metrics([row])
    assert names(run) == ["config.yaml"]
