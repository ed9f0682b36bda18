"""Word vectors: files of GloVe's format, the tokenizer that goes with them, and the table at a model's entrance."""

import gzip
import re

import numpy as np
import pytest
import transformers
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from dpnlp.checks import BadInput
from dpnlp.models.word_vectors import SPECIAL, Config, Vectors, WordVectors, read_vectors, tokenizer, words

GLOVE = "the 0.5 -1 2e-1\nOf 1 2 3\nof 9 9 9\ncafé -1 -2 -3\n. . . 0 0 0\nat name@domain.com 1 1 1\n1990 4 5 6\n"


@pytest.fixture(params=["vectors.txt", "vectors.txt.gz"])
def file(request, tmp_path):
    path = tmp_path / request.param
    data = GLOVE.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_a_file_of_glove_is_read_with_its_words_lower_cased(file):
    found = read_vectors(file)
    assert found.words == ("the", "of", "café", "1990")
    assert found.table.dtype == np.float32
    assert_allclose(found.table, [[0.5, -1, 0.2], [1, 2, 3], [-1, -2, -3], [4, 5, 6]], rtol=1e-6)


def test_only_the_words_that_are_wanted_are_kept(file):
    found = read_vectors(file, wanted=["1990", "The", "unheard"])
    assert found.words == ("the", "1990")
    assert_allclose(found.table, [[0.5, -1, 0.2], [4, 5, 6]], rtol=1e-6)
    assert read_vectors(file, most=2).words == ("the", "of")
    assert read_vectors(file, most=1, wanted={"café"}).words == ("café",)


def made():
    table = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    return Vectors(("hello", "world", "!"), table)


def test_each_token_has_the_row_of_its_word():
    vectors, entrance = made(), made().entrance()
    reads = vectors.tokenizer()
    given = reads("Hello, WORLD!")
    tokens = ["[CLS]", "hello", "[UNK]", "world", "!", "[SEP]"]
    assert reads.convert_ids_to_tokens(given["input_ids"]) == tokens
    found = np.asarray(entrance.embed(np.array([given["input_ids"]])))[0]
    assert_array_equal(found[[1, 3, 4]], vectors.table)
    assert_allclose(found[2], vectors.table.mean(axis=0), rtol=1e-6)
    assert np.abs(found[[0, 5]]).min() > 0
    assert_array_equal(entrance.embed(np.array([[reads.pad_token_id]])), np.zeros((1, 1, 4)))
    assert_array_equal(entrance.tokens.table[...], made().entrance(trained=True).tokens.table[...])
    assert (entrance.config, made().entrance(trained=True).config.trained) == (Config(7, 4, trained=False), True)


def test_the_tokenizer_does_for_pairs_and_words_what_one_of_bert_does():
    reads = tokenizer(("a", "b", "c", "'"))
    pair = reads("a b", "c")
    assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert reads.convert_ids_to_tokens(pair["input_ids"]) == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert reads([["a'b", "c"]], is_split_into_words=True).word_ids() == [None, 0, 0, 0, 1, None]
    cut = reads("a b c c c", "b", truncation="only_first", max_length=6, return_offsets_mapping=True)
    assert reads.convert_ids_to_tokens(cut["input_ids"]) == ["[CLS]", "a", "b", "[SEP]", "b", "[SEP]"]
    assert cut["offset_mapping"][1:3] == [(0, 1), (2, 3)]
    assert [reads.pad_token_id, reads.unk_token_id, reads.cls_token_id, reads.sep_token_id] == [0, 1, 2, 3]
    assert reads("a", padding="max_length", max_length=5)["attention_mask"] == [1, 1, 1, 0, 0]


def test_a_tokenizer_that_was_saved_is_the_same(tmp_path):
    reads = made().tokenizer()
    reads.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again("Hello new world!", "world") == reads("Hello new world!", "world")
    assert len(again) == len(reads) == len(SPECIAL) + 3


def test_a_table_that_is_to_be_trained_starts_at_random():
    one, other = (WordVectors(Config(9, 4), rngs=nnx.Rngs(seed)).tokens.table[...] for seed in (0, 1))
    assert one.shape == (9, 4)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the 1 2\nof 1 x\n", ", line 2: the vector of 'of' has to be 2 numbers;"),
        ("the 1 2\nof 1\n", ", line 2: it has to be a word and 2 numbers;"),
        ("the 1 2\nof 1 2 3\n", ", line 2: it has to be a word and 2 numbers;"),
        ("the 1 2\n\nof 1 2\n", ", line 2: it has to be a word and 2 numbers;"),
        ("the 1 2\n 1 2\n", ", line 2: it has to be a word and 2 numbers;"),
        ("the\n", ", line 1: it has to be a word and its numbers;"),
        ("the 1 2\nof inf 2\n", ", line 2: the numbers of 'of' have to be finite;"),
        ("", ": there is no word in it;"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path, text, sentence):
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    assert refusal(read_vectors, path).startswith(f"{path}{sentence}")


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "vectors.txt"
    assert refusal(read_vectors, path).startswith(f"{path}: it cannot be read (No such file or directory)")
    path.write_bytes(b"the 1 2\n\xff\xfe 1 2\n")
    assert refusal(read_vectors, path).startswith(f"{path}, line 2: it has to be text in UTF-8;")
    for name, data in {"a.gz": b"the 1 2\n", "b.gz": gzip.compress(GLOVE.encode())[:-12]}.items():
        (tmp_path / name).write_bytes(data)
        assert refusal(read_vectors, tmp_path / name).startswith(f"{tmp_path / name}: it cannot be read (")
    path.write_text("the 1 2\n")
    assert refusal(read_vectors, path, wanted=["of"]).startswith(f"{path}: none of the wanted words is in it;")
    assert refusal(read_vectors, path, most=0).startswith("most = 0: it must be a whole number of at least 1")
    assert refusal(tokenizer, ("a", "b", "a")).startswith("words: 'a' is there twice;")
    assert refusal(Config, 0, 4).startswith("vocabulary = 0: it must be")


def refusal(call, *given, **options):
    with pytest.raises(BadInput) as refused:
        call(*given, **options)
    assert re.fullmatch(r"[^\n]*\S\.", str(refused.value))
    return str(refused.value)


def test_the_words_of_texts_are_those_that_the_tokenizer_splits_them_into_the_most_frequent_first():
    texts = ["Play a song, play it", "it's a [SEP] song", ""]
    counted = words(texts)
    assert counted == ("a", "it", "play", "song", "'", ",", "[", "]", "s", "sep")
    assert words(texts, most=3) == counted[:3]
    made = tokenizer(counted)
    assert made.unk_token_id not in made(texts[0])["input_ids"]
    with pytest.raises(BadInput, match="most = 0: it must be a whole number of at least 1"):
        words(texts, most=0)
