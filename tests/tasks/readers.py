"""Micro BERTs with random weights for a few made-up words, and texts of these words with labels, tags and answers."""

import json

import jax
import numpy as np
import pytest
import transformers

from dpnlp.data.labelled import Labelled
from dpnlp.data.questions import Answer, Question
from dpnlp.data.tagged import Tagged
from dpnlp.models.pretrained import load_reader
from dpnlp.models.readers import Head

from ..models.agreement import moved

torch = pytest.importorskip("torch")

WORDS = [first + second for first in "bdgklmnprt" for second in "aeiou"]
PIECES = ["##s", "##z"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LABELS = ("bad", "fair", "good")
TAGS = ("B-X", "I-X", "O")
ENDINGS = {
    Head.SEQUENCES: "ForSequenceClassification",
    Head.TOKENS: "ForTokenClassification",
    Head.SPANS: "ForQuestionAnswering",
}


def tokenizer():
    """WordPiece: bas is ba ##s, and what is no such word is [UNK]."""
    return transformers.BertTokenizerFast(vocab={word: row for row, word in enumerate([*SPECIAL, *WORDS, *PIECES])})


def encoder(folder, layers=2):
    """A BERT without a head in a folder, with its tokenizer."""
    return _saved("Model", folder, layers)


def with_head(folder, head, labels=()):
    """A BERT with a head of transformers, and the same here."""
    named = {"id2label": dict(enumerate(labels)), "label2id": {label: row for row, label in enumerate(labels)}}
    theirs = _saved(ENDINGS[head], folder, **(named if labels else {}))
    return load_reader(folder, head), theirs


def _saved(kind, folder, layers=2, **options):
    shape = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL + WORDS + PIECES), max_position_embeddings=48, **shape, **rates, **options
    )
    model = moved(getattr(transformers, f"Bert{kind}")(config))
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model


def asked(theirs, ids, types, **labels):
    """What transformers' model says to one example, with the loss where labels are given."""
    given = {"input_ids": ids, "token_type_ids": types} | labels
    with torch.no_grad():
        return theirs(**{name: torch.tensor([value]) for name, value in given.items()})


def losses(task, examples, rows, length):
    return np.asarray(jax.jit(task.loss)(task.model, examples.batch(np.array(rows), length)))


def assert_losses_are_those_of_each_alone(task, examples, expected):
    """Law 4: no batchmate, no padding and no order touches a loss."""
    longest, every = int(examples.lengths.max()), range(len(examples))
    assert len(set(examples.lengths.tolist())) > 1
    for rows, length in ((every, longest), (every[::-1], longest), (every, longest + 5), ([1, 1, 0], longest)):
        np.testing.assert_allclose(losses(task, examples, rows, length), [expected[row] for row in rows], rtol=2e-5)


def words(rng, least, most):
    """Some words, of which about a third have two or three pieces."""
    return [str(rng.choice(WORDS)) + str(rng.choice(["", "", "s", "zs"])) for _ in range(rng.integers(least, most + 1))]


def labelled(count, seed=0, pairs=False):
    """Texts with labels; three of them belong to one owner."""
    rng = np.random.default_rng(seed)
    return [
        Labelled(
            " ".join(words(rng, 2, 6)),
            " ".join(words(rng, 1, 4)) if pairs else None,
            str(rng.choice(LABELS)) if number >= len(LABELS) else LABELS[number],
            f"owner {number // 3}",
        )
        for number in range(count)
    ]


def tagged(count, seed=0):
    """Sentences with tags."""
    rng = np.random.default_rng(seed)
    made = [tuple(words(rng, 3, 8)) for _ in range(count)]
    return [
        Tagged(sentence, ("B-X", "I-X", "O", *map(str, rng.choice(TAGS, len(sentence) - 3))), None) for sentence in made
    ]


def questions(count, seed=0, least=10, most=24):
    """Questions about texts, of which every fourth has no answer."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        context = words(rng, least, most)
        first = int(rng.integers(0, len(context) - 2))
        text, start = " ".join(context[first : first + 2]), len(" ".join([*context[:first], ""]))
        answers = () if number % 4 == 3 else (Answer(text, start),)
        made.append(Question(f"q{number}", " ".join(words(rng, 1, 2)), " ".join(context), answers, None))
    return made


def write_labelled(path, records):
    return _write(path, ({"text": r.text, "pair": r.pair, "label": r.label, "who": r.owner} for r in records))


def write_tagged(path, records):
    return _write(path, ({"words": record.words, "tags": record.tags} for record in records))


def write_questions(path, records):
    return _write(
        path,
        (
            {
                "id": record.id,
                "question": record.question,
                "context": record.context,
                "answers": [{"text": answer.text, "answer_start": answer.start} for answer in record.answers],
            }
            for record in records
        ),
    )


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
