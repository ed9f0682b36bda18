"""Small language models for words of a made-up language, and texts of several owners."""

import json

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from dpnlp.data.plain import Text
from dpnlp.models.pretrained import fresh_decoder, fresh_lstm

WORDS = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du", "."]
END, UNKNOWN = 1, 2


def tokenizer(**changes):
    """One that knows these words."""
    vocabulary = {word: number for number, word in enumerate(("<pad>", "</s>", "<unk>", *WORDS))}
    made = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"} | changes
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def sentences(count, seed=0, owners=5):
    """Texts of one to nine words in a fixed order of the words; now and then one is not known."""
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        first, length = rng.integers(0, 10), rng.integers(1, 10)
        words = ["what" if rng.random() < 0.1 else WORDS[(first + step) % 10] for step in range(length)]
        texts.append(Text(" ".join(words), f"owner {number % owners}"))
    return texts


def lstm(seed=0):
    return fresh_lstm(tokenizer(), width=6, hidden=8, dropout=0.0, computes="float32", seed=seed)


def decoder(positions=16, seed=0):
    shape = {"width": 8, "layers": 1, "heads": 2, "hidden": 12, "positions": positions}
    return fresh_decoder(tokenizer(), **shape, dropout=0.0, computes="float32", seed=seed)


def write_texts(path, texts):
    lines = ({"text": text.text, "who": text.owner} for text in texts)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
