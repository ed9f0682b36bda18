"""A small translator with random weights for words of two made-up languages, and pairs of them."""

import json

import numpy as np

from dpnlp.data.pairs import Pair
from dpnlp.data.vocabulary import learned
from dpnlp.models.pretrained import from_scratch, save

ONE = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"]
OTHER = ["kla", "kle", "kli", "klo", "klu", "pra", "pre", "pri", "pro", "pru"]


def sentences(count, seed=0):
    """Pairs of three to six words, each word with one translation; five pairs belong to one owner."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 10, rng.integers(3, 7)) for _ in range(count)]
    return [
        Pair(" ".join(ONE[word] for word in row), " ".join(OTHER[word] for word in row), f"owner {number // 5}")
        for number, row in enumerate(rows)
    ]


def tokenizer():
    return learned((text for pair in sentences(200) for text in pair[:2]), 300)


def translator(seed=0):
    """One layer on each side."""
    shape = {"width": 16, "layers": 1, "heads": 2, "hidden": 32}
    return from_scratch(tokenizer(), **shape, dropout=0.0, computes="float32", seed=seed)


def write_pairs(path, pairs):
    lines = ({"de": pair.source, "en": pair.target, "who": pair.owner} for pair in pairs)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def saved(folder, seed=0):
    save(translator(seed), folder)
    return folder
