"""Folders of networks for graphs: what is saved is what is loaded, and a damaged folder is one sentence."""

import json
import re
import stat

import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models.gcn import GCN, Config
from dpnlp.models.pretrained import Network, load_network, save_network

from .hugging_face import change_tensors

CLASSES = ("pošta", "sport")


def network(features=3, seed=0, **more):
    shape = Config(features, len(CLASSES), hidden=4, layers=2, hops=2, dropout=0.25)
    return Network(GCN(shape, rngs=nnx.Rngs(seed)), CLASSES, **more)


def weights(model):
    return [np.asarray(linear.kernel[...]) for linear in model.linear]


@pytest.mark.parametrize("aggregations", [0, 2])
def test_a_network_comes_back(aggregations, tmp_path):
    ours = network(aggregations=aggregations)
    save_network(ours, tmp_path / "model")
    found = load_network(tmp_path / "model")
    assert found.model.config == ours.model.config
    assert (found.classes, found.aggregations, found.base) == (CLASSES, aggregations, None)
    for one, other in zip(weights(found.model), weights(ours.model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "dpnlp-gcn"
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o400 for path in (tmp_path / "model").iterdir()}
    assert modes == {0o400}


def test_a_network_comes_back_with_the_one_whose_answers_it_reads(tmp_path):
    base = network(features=5, seed=1)
    save_network(network(features=6, aggregations=1, base=base), tmp_path / "model")
    found = load_network(tmp_path / "model").base
    assert found.model.config == base.model.config
    assert (found.classes, found.aggregations, found.base) == (CLASSES, 0, None)
    for one, other in zip(weights(found.model), weights(base.model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_is_written_over(tmp_path):
    save_network(network(), tmp_path / "model")
    with pytest.raises(BadInput, match="there is something in it already; choose another one"):
        save_network(network(seed=1), tmp_path / "model")
    for one, other in zip(weights(load_network(tmp_path / "model").model), weights(network().model), strict=True):
        np.testing.assert_array_equal(one, other)


def changed(**entries):
    def change(folder):
        said = json.loads((folder / "config.json").read_text())
        for name, value in entries.items():
            inside = said if name in said else said["network"]
            inside[name] = value
        (folder / "config.json").write_text(json.dumps(said))

    return change


def written(text):
    return lambda folder: (folder / "config.json").write_text(text)


def tensors(change):
    return lambda folder: change_tensors(folder, change)


DAMAGED = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "there is no config.json in it"),
    "another kind": (changed(model_type="bert"), "model_type = 'bert', which must be dpnlp-gcn; give the folder of"),
    "no JSON": (written("{"), "config.json: it cannot be read (Expecting property name"),
    "no object": (written("[]"), "config.json: model_type = None, which must be dpnlp-gcn"),
    "no network": (written('{"model_type": "dpnlp-gcn"}'), "config.json: it cannot be read ('classes' is missing)"),
    "an unknown entry": (
        changed(network={"depth": 3}),
        "config.json: it cannot be read (Config.__init__() got an unexpected",
    ),
    "no width": (changed(hidden=0), "config.json: hidden = 0: it must be a whole number of at least 1."),
    "no count": (changed(aggregations=-1), "config.json: aggregations = -1: it must be a whole number of at least 0."),
    "too few classes": (changed(classes=["a"]), "it names 1 classes, and the network has 2; name each of them."),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "there is no model.safetensors in it"),
    "half the weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:50]),
        "model.safetensors: it cannot be read (",
    ),
    "other weights": (changed(hidden=5), "the tensor linear.0.kernel has the shape [3, 4], and by config.json it is"),
    "a missing tensor": (tensors(lambda found: found.pop("linear.1.kernel")), "linear.1.kernel is missing"),
    "a tensor too many": (
        tensors(lambda found: found.update(bias=np.zeros(2, np.float32))),
        "the tensor bias has no place in the model",
    ),
    "a damaged base": (
        lambda folder: (folder / "base" / "config.json").unlink(),
        "base: there is no config.json in it",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_folder_is_one_sentence(case, tmp_path):
    damage, sentence = DAMAGED[case]
    folder = tmp_path / "model"
    save_network(network(base=network()), folder)
    damage(folder)
    with pytest.raises(BadInput, match=re.escape(sentence)) as refusal:
        load_network(folder)
    assert str(refusal.value).startswith(str(folder))
    assert "\n" not in str(refusal.value)
