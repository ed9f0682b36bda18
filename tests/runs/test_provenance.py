"""What a thing was made of is found wherever a copy of it lies, and whatever of it is copied."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dpnlp.accounting import accountant
from dpnlp.checks import BadInput
from dpnlp.events import Gaussian, NonPrivate
from dpnlp.guarantee import Adjacency, Exposure, Guarantee, Term, Trust, Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import Origin, Privacy, new_id
from dpnlp.runs.provenance import PUBLIC, UNKNOWN, Door, Provenance, run_of

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def origin(epsilon=None):
    event = Gaussian(2.0) if epsilon is None else NonPrivate()
    cost = accountant.epsilon(event, 1e-5, Adjacency.ADD_REMOVE)
    promised = Guarantee(cost, 1e-5, Unit.EXAMPLE, Adjacency.ADD_REMOVE, Trust.CENTRAL, Term("gaussian"))
    return Origin(new_id(), "dpnlp train first", event, promised)


def weights(folder, seed, **kept):
    """A folder with some weights, of which `kept` are given."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    made = {"a": rng.normal(size=(8, 4)).astype("f"), "b": rng.normal(size=64).astype("f"), "zeros": np.zeros(32, "f")}
    save_file(made | kept, folder / WEIGHTS)
    return folder


def words(*listed):
    """A tokenizer of these words, as tokenizer.json has it."""
    return {"model": {"type": "WordLevel", "vocab": {word: number for number, word in enumerate(listed)}}}


def read(source, **how):
    door = Door()
    door.open(str, source, **how)
    return door.provenance


@pytest.fixture(autouse=True)
def _home_of_its_own(tmp_path, monkeypatch):
    """No test knows what another has made."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "home"))


@pytest.fixture
def run(tmp_path):
    """A finished run without anything in it but weights that it made, of which one tensor is as it was at its start."""
    start = weights(tmp_path / "start", 1)
    (start / TOKENIZER).write_text(json.dumps(words("good", "morning")))
    door = Door()
    door.open(str, start, public=True)
    run = Run.create(tmp_path / "runs" / "first", {"name": "first"}, "dpnlp train")
    run.write_privacy(door.provenance.promising(origin(), {}))
    weights(run.model, 2, b=load_file(start / WEIGHTS)["b"])
    (run.model / TOKENIZER).write_text(json.dumps(words("good", "morning") | {"padding": "left"}))
    door.keep(run.model, Provenance(run.privacy.origins))
    return run


def copies(run, place):
    """Ways to name or copy the run's model, each with what it is."""
    place.mkdir()
    yield "the run", run.path
    yield "its model", run.model
    yield "a path with dots", run.path / "." / ".." / run.path.name / "model" / ".." / "model"
    link = place / "link"
    link.symlink_to(run.model)
    yield "a link to the model", link
    other = place / "other"
    other.symlink_to(run.path)
    yield "a link to the run", other
    yield "a copy of the run", shutil.copytree(run.path, place / "copied")
    yield "a copy of the model", shutil.copytree(run.model, place / "model-alone")
    yield "without what dpnlp wrote beside it", bare(shutil.copytree(run.model, place / "bare"))
    renamed = bare(shutil.copytree(run.model, place / "renamed"))
    tensors = {f"model.{name}": value for name, value in load_file(renamed / WEIGHTS).items()}
    save_file(tensors, renamed / WEIGHTS, metadata={"format": "pt"})
    yield "with its tensors under other names, saved anew", renamed
    sharded = bare(shutil.copytree(run.model, place / "sharded"))
    for number, (name, value) in enumerate(load_file(sharded / WEIGHTS).items()):
        save_file({name: value}, sharded / f"model-{number}.safetensors")
    (sharded / WEIGHTS).unlink()
    yield "in several files", sharded
    part = weights(place / "part", 7, a=load_file(run.model / WEIGHTS)["a"])
    yield "one tensor of it among others", part


def bare(folder):
    (folder / "provenance.json").unlink()
    return folder


def test_a_copy_costs_what_the_run_has_cost(run, tmp_path):
    for what, source in copies(run, tmp_path / "copies"):
        assert read(source).origins == run.privacy.origins, what
        assert read(source).exposures == (), what


def test_whoever_has_the_public_start_alone_pays_nothing(run, tmp_path):
    assert read(tmp_path / "start") == UNKNOWN
    assert read(tmp_path / "start", public=True) == PUBLIC
    frozen = weights(tmp_path / "frozen", 5, b=load_file(run.model / WEIGHTS)["b"])
    assert read(frozen) == UNKNOWN


def test_a_thing_is_public_only_if_it_costs_nothing_and_leaves_nothing_to_name():
    made = [Provenance(), Provenance(learned_from=(new_id(),)), Provenance((origin(),))]
    made += [Provenance(exposures=(Exposure.VOCABULARY,)), Provenance((origin(),), (Exposure.ORIGIN,))]
    assert [one.is_public for one in made] == [True, True, False, False, False]


def test_nothing_is_said_of_a_folder_of_which_nothing_is_known(tmp_path):
    assert read(weights(tmp_path / "any", 3)).exposures == (Exposure.ORIGIN,)
    assert read(weights(tmp_path / "any", 3), public=True) == PUBLIC


def test_what_has_a_promise_cannot_be_said_to_be_public(run, tmp_path):
    for source in (run.path, bare(shutil.copytree(run.model, tmp_path / "bare"))):
        with pytest.raises(BadInput, match="dpnlp train first was made of private data, under ε = "):
            read(source, public=True)
    opened = Door()
    opened.keep(weights(tmp_path / "open", 9), Provenance((origin(9.0),)))
    assert read(tmp_path / "open").origins[0].event == NonPrivate()
    assert read(tmp_path / "open", public=True) == PUBLIC


def test_what_is_said_to_be_public_still_names_the_runs_that_it_learned_from(tmp_path):
    opened, door = Door(), Door()
    public = Provenance((origin(9.0),), learned_from=(new_id(),))
    opened.keep(weights(tmp_path / "open", 9), public)
    door.open(str, tmp_path / "open", public=True)
    assert door.provenance == Provenance(learned_from=public.learned_from)
    door.keep(weights(tmp_path / "tuned", 10))
    assert read(tmp_path / "tuned").is_public
    for source in (tmp_path / "tuned", bare(tmp_path / "tuned")):
        assert read(source).learned_from == public.learned_from


def test_all_runs_behind_what_an_earlier_version_wrote_may_have_been_learned_from(run):
    for file, read_again in (run.path / "privacy.json", Privacy), (run.model / "provenance.json", Provenance):
        entry = json.loads(file.read_text())
        del entry["learned_from"]
        assert read_again.from_json(entry).learned_from == (run.id,)
        for wrong in ("all", ["all"], [1]):
            with pytest.raises(BadInput, match="learned_from: it must be a list of ids"):
                read_again.from_json({**entry, "learned_from": wrong})


def test_what_was_made_of_a_run_costs_what_both_have_cost_and_the_first_alone_what_it_did(run, tmp_path):
    door = Door()
    door.open(str, run.path)
    second = Run.create(tmp_path / "runs" / "second", {"name": "second"}, "dpnlp train")
    second.write_privacy(door.provenance.promising(origin(), {}))
    frozen = load_file(run.model / WEIGHTS)
    weights(second.model, 11, a=frozen["a"])
    door.keep(second.model, Provenance(second.privacy.origins))
    assert read(second.path).origins == (*run.privacy.origins, second.privacy.own)
    assert read(bare(shutil.copytree(second.model, tmp_path / "bare"))).origins == second.privacy.origins
    assert read(bare(shutil.copytree(run.model, tmp_path / "first"))).origins == run.privacy.origins


def test_equal_content_of_two_runs_is_explained_by_either(run, tmp_path):
    """A run that is made again with a fixed seed has the same weights: each of the two has its own cost."""
    again = Run.create(tmp_path / "runs" / "again", {"name": "again"}, "dpnlp train")
    again.write_privacy(Privacy((origin(),)))
    shutil.copytree(bare(shutil.copytree(run.model, tmp_path / "bare")), again.model)
    door = Door()
    door.open(str, tmp_path / "start", public=True)
    door.keep(again.model, Provenance(again.privacy.origins))
    assert read(again.path).origins == again.privacy.origins
    assert read(run.path).origins == run.privacy.origins
    assert read(tmp_path / "bare").origins == run.privacy.origins


@pytest.mark.parametrize("edited", ["privacy.json", "model/provenance.json"])
def test_a_file_that_was_changed_is_refused_where_it_lies_and_where_it_is_contradicted(run, edited):
    file = run.path / edited
    entry = json.loads(file.read_text())
    entry["origins"][0]["guarantee"]["epsilon"] = 0.1
    file.write_text(json.dumps(entry))
    with pytest.raises(BadInput, match=r"what it did costs [\d.]+; restore the file"):
        read(run.path)
    # With events to match, it is contradicted by what the machine remembers of these weights, and by the other file.
    entry["origins"][0]["event"] = {"event": "gaussian", "noise_multiplier": 500.0}
    entry["origins"][0]["guarantee"]["epsilon"] = 0.1
    if edited == "privacy.json":
        whole = Privacy((Origin.from_json(entry["origins"][0]),)).to_json()
        entry = whole
    file.write_text(json.dumps(entry))
    with pytest.raises(BadInput, match="otherwise"):
        read(run.path)


def test_a_vocabulary_is_known_by_its_words_in_whatever_format(tmp_path):
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / TOKENIZER).write_text(json.dumps(words("secret", "morning")))
    made = Provenance((origin(),))
    Door().keep(folder, made)
    formats = {TOKENIZER: words("secret", "morning") | {"padding": "left"}, "vocab.json": {"morning": 0, "secret": 1}}
    for name, text in {
        **{name: json.dumps(it) for name, it in formats.items()},
        "vocab.txt": "secret\nmorning\n",
    }.items():
        copied = tmp_path / f"as-{name}"
        copied.mkdir()
        (copied / name).write_text(text)
        assert read(copied) == made, name
        assert read(copied / name) == made, name


def test_the_tokenizer_beside_weights_is_the_run_s_unless_it_was_opened(run, tmp_path):
    copied = tmp_path / "copied"
    copied.mkdir()
    shutil.copy(run.model / TOKENIZER, copied)
    assert read(copied) == UNKNOWN
    own = Provenance((origin(),))
    scratch = weights(tmp_path / "scratch", 8)
    (scratch / TOKENIZER).write_text(json.dumps(words("secret", "evening")))
    Door().keep(scratch, own)
    shutil.copy(scratch / TOKENIZER, copied)
    assert read(copied) == own


def test_what_went_in_uncovered_is_named_by_whatever_is_made_of_it(tmp_path):
    folder = weights(tmp_path / "rewriter", 4)
    Door().keep(folder, Provenance(exposures=(Exposure.PRETRAINING,)))
    door = Door()
    door.open(str, bare(shutil.copytree(folder, tmp_path / "copy")))
    own = origin()
    assert door.provenance.promising(own, {}).guarantee.not_covered == (Exposure.PRETRAINING,)
    with pytest.raises(BadInput, match=r"scoring\.encoder = x: it is made of private data"):
        door.refuse_costs("scoring.encoder", "x")


@pytest.mark.parametrize("exposure", [one for one in Exposure if one is not Exposure.ORIGIN])
def test_what_private_data_went_into_uncovered_cannot_be_said_to_be_public(tmp_path, exposure):
    folder = weights(tmp_path / "unsafe", 4)
    Door().keep(folder, Provenance(exposures=(exposure,)))
    for source in (folder, bare(shutil.copytree(folder, tmp_path / "copy"))):
        with pytest.raises(BadInput, match="private data went into it"):
            read(source, public=True)


@pytest.mark.parametrize("exposure", [Exposure.PRETRAINING, Exposure.VOCABULARY])
def test_a_run_without_privacy_does_not_make_public_what_its_start_was_made_of(tmp_path, exposure):
    for named, opened in ((exposure, "unsafe"), (Exposure.DIAGNOSTICS, "open")):
        own = origin(9.0)
        own = replace(own, promised=own.promised.with_exposures(named))
        Door().keep(weights(tmp_path / opened, len(opened)), Provenance((own,)))
    with pytest.raises(BadInput, match="private data went into it"):
        read(tmp_path / "unsafe", public=True)
    assert read(tmp_path / "open", public=True) == PUBLIC


def test_a_run_that_has_no_model_yet_is_refused(tmp_path):
    run = Run.create(tmp_path / "runs" / "first", {"name": "first"}, "dpnlp train")
    run.write_privacy(Privacy((origin(),)))
    with pytest.raises(BadInput, match="the run is not finished"):
        read(run.path)
    assert run_of(tmp_path) is None


def test_weights_that_cannot_be_read_are_refused(tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(b"\xff" * 40)
    with pytest.raises(BadInput, match="it cannot be read"):
        read(folder)
