"""The small model that is shipped: it is small, writes whatever is asked of it, and knows only what is public."""

from pathlib import Path

import pytest

import dpnlp.demo
from dpnlp.demo import grammar
from dpnlp.models.generation import generate
from dpnlp.models.pretrained import load

FOLDER = Path(dpnlp.demo.__file__).parent / "model"
SEEN = 60_000  # how many public sentences it was trained on


@pytest.fixture(scope="module")
def pretrained():
    return load(FOLDER)


def right(pretrained, pairs):
    """The share of the pairs that the model translates word for word."""
    tokenizer = pretrained.tokenizer
    sources = tokenizer([pair.source for pair in pairs]).input_ids
    written = tokenizer.batch_decode(
        generate(pretrained.model, sources, pretrained.options(), batch=len(pairs), lengths=(64,)),
        skip_special_tokens=True,
    )
    return sum(text == pair.target for text, pair in zip(written, pairs, strict=True)) / len(pairs)


def test_the_folder_is_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2.5e6


def test_what_is_private_can_be_read_and_written_without_having_been_seen(pretrained):
    tokenizer = pretrained.tokenizer
    for pair in grammar.private(1000, 0, grammar.secrets([1], 0)):
        for text in pair[:2]:
            tokens = tokenizer(text).input_ids
            assert tokenizer.unk_token_id not in tokens
            assert tokens[-1] == tokenizer.eos_token_id
            assert tokenizer.decode(tokens, skip_special_tokens=True) == text


def test_no_name_of_a_patient_is_a_token(pretrained):
    names = {part for patient in grammar.clinic.PATIENTS for part in patient.name.split()}
    whole = {token.lstrip("▁") for token in pretrained.tokenizer.get_vocab() if token.startswith("▁")}
    assert len(names & whole) < len(names) / 20


def test_it_translates_everyday_sentences_and_not_the_notes_of_the_clinic(pretrained):
    unseen = grammar.public(SEEN + 32, 0)[SEEN:]
    assert right(pretrained, unseen) > 0.7
    assert right(pretrained, grammar.test(32, 0)) < 0.2
