"""Tokens in the cache are those that the tokenizer gives for each text alone, and no half-made cache is believed."""

import errno
import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, ByT5Tokenizer, MBartTokenizer, NllbTokenizer, PreTrainedTokenizerFast

from dpnlp.checks import BadInput
from dpnlp.data import cache as cached
from dpnlp.data.cache import Examples, Ragged
from dpnlp.data.pairs import Columns, kept, pairs
from dpnlp.data.tokens import encoded, tokenized

WORDS = ["<pad>", "</s>", "<unk>", *"abcdefghij", "translate", ":"]
PAD, END = 9, 1
STATUS = Path("/proc/self/status")


def tokenizer_of(words=WORDS, template="$A </s>", pad="g", **options):
    """A word-level tokenizer whose padding, to be told from zeros, is not token 0."""
    backend = Tokenizer(models.WordLevel({word: code for code, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("</s>", END)])
    special = {"pad_token": pad, "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special, **options)


class Counting:
    """A tokenizer that counts the texts it is given."""

    def __init__(self, tokenizer):
        self.tokenizer, self.texts = tokenizer, 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def __call__(self, **given):
        self.texts += len(given.get("text", ())) + len(given.get("text_target", ()))
        return self.tokenizer(**given)


class Quick(Counting):
    """A tokenizer that only splits at spaces."""

    def __call__(self, **given):
        (texts,) = (given[side] for side in ("text", "text_target") if side in given)
        return {"input_ids": [[*map(len, text.split()), END] for text in texts]}


ROWS = [("a b c", "d", "x"), ("e", "f g h i j a", "y"), ("zzz b", "c d", "x"), ("a b c d e f g h i j", "a", "z")]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"source": s, "target": t, "owner": o}) + "\n" for s, t, o in ROWS))
    return path


@pytest.fixture
def opened(corpus):
    return pairs(corpus, Columns(owner="owner"))


@pytest.mark.parametrize("batch", [1, 3, 4096])
def test_the_tokens_are_those_of_each_text_by_itself(opened, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(cached, "_BATCH", batch)
    tokenizer = tokenizer_of()
    found = tokenized(opened, tokenizer, longest=5, prefix="translate : ", cache=tmp_path / "cache")
    expected = {
        side: [tokenizer(text)["input_ids"] for text in texts]
        for side, texts in (("ids", ["translate : " + row[0] for row in ROWS]), ("targets", [row[1] for row in ROWS]))
    }
    cut = {side: [t if len(t) <= 5 else [*t[:4], END] for t in texts] for side, texts in expected.items()}
    rows = np.array([3, 0, 1, 2, 3])
    assert len(found) == 4
    assert found.ragged["ids"].lists(rows) == [cut["ids"][row] for row in rows]
    assert found.lengths.tolist() == [max(map(len, both)) for both in zip(cut["ids"], cut["targets"], strict=True)]
    assert found.owners.tolist() == [0, 1, 0, 2]
    got = found.batch(rows, 7)
    for side, mask in (("ids", "mask"), ("targets", "target_mask")):
        assert got[side].dtype == np.int32
        assert got[mask].dtype == bool
        assert got[side].tolist() == [cut[side][row] + [PAD] * (7 - len(cut[side][row])) for row in rows]
        assert got[mask].tolist() == [[place < len(cut[side][row]) for place in range(7)] for row in rows]


def test_without_owners_there_are_no_codes(corpus, tmp_path):
    assert tokenized(pairs(corpus, Columns()), tokenizer_of(), longest=5, cache=tmp_path / "cache").owners is None


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), min_size=1, max_size=6), st.data())
def test_padding_is_what_a_loop_would_do(texts, data):
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8))
    length, pad = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 3))
    flat = np.array([token for text in texts for token in text], np.int32)
    ragged = Ragged(flat, np.cumsum([0, *map(len, texts)]))
    ids, mask = ragged.padded(np.array(rows, np.int64), length, pad)
    assert ids.shape == mask.shape == (len(rows), length)
    for row, own, real in zip(rows, ids, mask, strict=True):
        for place in range(length):
            inside = place < len(texts[row])
            assert real[place] == inside
            assert own[place] == (texts[row][place] if inside else pad)
    assert ragged.lists(np.array(rows, np.int64)) == [texts[row] for row in rows]


def test_the_cache_is_for_its_owner_alone(opened, tmp_path):
    found = tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path / "deep" / "cache")
    paths = [found.folder.parent, found.folder, *found.folder.iterdir()]
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}
    assert [path.name for path in found.folder.parent.iterdir()] == [found.folder.name]


def test_a_small_vocabulary_takes_two_bytes_a_token(opened, tmp_path):
    small = tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path)
    large = tokenized(opened, tokenizer_of([*WORDS, *map(str, range(2**16))]), longest=5, cache=tmp_path)
    assert [
        (at.folder / "ids").stat().st_size / sum(map(len, at.ragged["ids"].lists(range(4)))) for at in (small, large)
    ] == [2, 4]
    assert small.ragged["ids"].lists(range(4)) == large.ragged["ids"].lists(range(4))


def test_a_second_time_nothing_is_tokenized(opened, tmp_path):
    tokenizer = Counting(tokenizer_of())
    first = tokenized(opened, tokenizer, longest=5, cache=tmp_path / "cache")
    assert tokenizer.texts == 2 * len(ROWS) + 2  # One pair without text shows where the end token goes.
    tokenizer.texts = 0
    again = tokenized(opened, tokenizer, longest=5, cache=tmp_path / "cache")
    assert tokenizer.texts == 2
    assert again.folder == first.folder
    assert again.ragged["ids"].lists(range(4)) == first.ragged["ids"].lists(range(4))


def test_all_that_changes_the_tokens_has_a_place_of_its_own(corpus, tmp_path):
    plain, owned = Columns(), Columns(owner="owner")
    usual = {"longest": 5, "cache": tmp_path / "cache"}
    tokenizer = tokenizer_of()

    def place(columns=plain, tokenizer=tokenizer, opened=None, **settings):
        return tokenized(opened or pairs(corpus, columns), tokenizer, **usual | settings).folder.name

    same = place()
    moved = corpus.rename(tmp_path / "other.jsonl")
    moved.touch()
    corpus.write_bytes(moved.read_bytes())
    tokenizer.save_pretrained(tmp_path / "one")
    tokenizer.save_pretrained(tmp_path / "two")
    tokenizer(["a b c"], truncation=True, max_length=2, padding="max_length")
    assert {place(), place(opened=pairs(moved, plain)), place(tokenizer=tokenizer_of())} == {same}
    for folder in ("one", "two"):
        assert place(tokenizer=AutoTokenizer.from_pretrained(tmp_path / folder)) == same
    others = [
        place(owned),
        place(Columns("target", "source")),
        place(opened=kept(pairs(corpus, plain))),
        place(opened=kept(pairs(corpus, plain), longest=99)),
        place(prefix="a "),
        place(longest=6),
        place(languages=("de", "en")),
        place(tokenizer=tokenizer_of([*WORDS, "k"])),
        place(tokenizer=tokenizer_of([*WORDS[:3], *reversed(WORDS[3:])])),
        place(tokenizer=tokenizer_of(template="$A </s> </s>")),
        place(tokenizer=tokenizer_of(pad="h")),
        place(tokenizer=tokenizer_of(truncation_side="left")),
    ]
    corpus.write_bytes(corpus.read_bytes().replace(b"zzz", b"zzy"))
    assert len({same, *others, place()}) == len(others) + 2


@pytest.mark.parametrize(
    ("kind", "languages"), [(MBartTokenizer, ("de_DE", "en_XX")), (NllbTokenizer, ("deu_Latn", "eng_Latn"))]
)
def test_languages_are_set_on_both_sides(corpus, tmp_path, kind, languages):
    found = tokenized(pairs(corpus, Columns()), kind(), longest=9, cache=tmp_path / "cache", languages=languages)
    alone = kind()
    alone.src_lang, alone.tgt_lang = languages
    expected = alone("a b c", text_target="d")
    assert found.ragged["ids"].lists([0]) == [expected["input_ids"]]
    assert alone.convert_tokens_to_ids(languages[0]) in found.ragged["ids"].lists([0])[0]
    targets = found.batch(np.array([0]), 9)
    assert targets["targets"][targets["target_mask"]].tolist() == expected["labels"]
    assert alone.convert_tokens_to_ids(languages[1]) in expected["labels"]


def test_a_tokenizer_written_in_python_serves_too(corpus, tmp_path):
    found = tokenized(pairs(corpus, Columns()), ByT5Tokenizer(), longest=6, cache=tmp_path / "cache")
    assert found.ragged["ids"].lists(range(4)) == [
        ByT5Tokenizer()(s, truncation=True, max_length=6)["input_ids"] for s, _, _ in ROWS
    ]
    assert (
        tokenized(pairs(corpus, Columns()), ByT5Tokenizer(), longest=6, cache=tmp_path / "cache").folder == found.folder
    )
    other = ByT5Tokenizer(extra_ids=5)
    assert tokenized(pairs(corpus, Columns()), other, longest=6, cache=tmp_path / "cache").folder != found.folder


def test_encoded_serves_the_texts_to_translate():
    tokenizer = tokenizer_of()
    assert encoded(["a b c", "d"], tokenizer, longest=3) == [[3, 4, END], [6, END]]
    assert encoded([], tokenizer, longest=3) == []
    with pytest.raises(BadInput) as refusal:
        encoded(["a"], tokenizer, longest=1)
    assert (
        str(refusal.value) == "longest = 1: it must be a whole number of at least 2; the tokenizer adds 1 to each text."
    )


def test_a_tokenizer_without_an_end_is_refused(opened, tmp_path):
    with pytest.raises(BadInput, match=r"^tokenizer: it puts no end token after a text"):
        tokenized(opened, tokenizer_of(template="$A"), longest=5, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_what_is_wrong_with_the_pairs_leaves_nothing_behind(corpus, tmp_path):
    with corpus.open("a") as file:
        file.write('{"source": "a", "target": ""}')
    with pytest.raises(BadInput, match=r"line 5: the target \(target\) is empty"):
        tokenized(pairs(corpus, Columns()), tokenizer_of(), longest=5, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_changes_while_it_is_read_is_refused(corpus, opened, tmp_path, monkeypatch):
    whole = cached._write

    def write(*arguments):
        whole(*arguments)
        with corpus.open("a") as file:
            file.write("\n")

    monkeypatch.setattr(cached, "_write", write)
    with pytest.raises(
        BadInput, match=r"corpus\.jsonl: it changed while it was read; start again when it is complete\.$"
    ):
        tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(opened, tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cached.os, "fsync", full)
    with pytest.raises(BadInput) as refusal:
        tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path / "cache")
    assert str(refusal.value) == (
        f"cache = {tmp_path / 'cache'}: the tokens cannot be written there (No space left on device); make room, or "
        "choose another folder."
    )
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_is_a_file_is_one_sentence(opened, corpus):
    with pytest.raises(BadInput, match=r"the tokens cannot be written there \(File exists\)"):
        tokenized(opened, tokenizer_of(), longest=5, cache=corpus)


@pytest.mark.parametrize("name", ["about.json", "ids", "targets.offsets", "lengths", "owners"])
def test_a_damaged_cache_is_not_believed(opened, tmp_path, name):
    found = tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path / "cache")
    path = found.folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput) as refusal:
        Examples.opened(found.folder)
    assert str(refusal.value) == f"{path}: it is damaged or missing; delete its folder, which is then made again."


def test_two_who_write_at_once_agree(opened, tmp_path, monkeypatch):
    """Both find nothing, one writes, and the other waits for it and takes what it has written."""
    together, whole, writes, found = threading.Barrier(2, timeout=20), cached._write, [], []

    def write(*arguments):
        writes.append(arguments)
        whole(*arguments)

    monkeypatch.setattr(cached, "_write", write)

    def run():
        together.wait()
        found.append(tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path / "cache"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(writes)) == (2, 1)
    assert found[0].folder == found[1].folder
    assert found[0].ragged["ids"].lists(range(4)) == found[1].ragged["ids"].lists(range(4))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [found[0].folder.name]


def script(body: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Runs some lines in a process of their own, which has this file's tokenizer."""
    head = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_tokens import *\n"
    command = [sys.executable, "-c", head + textwrap.dedent(body), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_kill_in_the_middle_leaves_nothing_that_is_taken_for_whole(corpus, opened, tmp_path):
    killed = script(
        """
        import os, signal
        def batches(pairs, whole=cached._batches):
            for number, batch in enumerate(whole(pairs)):
                if number == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch
        cached._batches, cached._BATCH = batches, 1
        tokenized(pairs(sys.argv[1], Columns(owner="owner")), tokenizer_of(), longest=5, cache=Path(sys.argv[2]))
        """,
        corpus,
        tmp_path / "cache",
    )
    assert killed.returncode == -9, killed.stderr
    assert all(left.name.startswith(".") for left in (tmp_path / "cache").iterdir())
    found = tokenized(opened, tokenizer_of(), longest=5, cache=tmp_path / "cache")
    assert len(found) == len(ROWS)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [found.folder.name]


@pytest.mark.skipif(not STATUS.exists(), reason="the peak of a process by itself is known on Linux only")
def test_many_pairs_need_little_memory(tmp_path):
    """200,000 pairs, whose strings would take over 25 MB of memory, go through a process that grows far less."""
    path = tmp_path / "corpus.tsv"
    lines = [f"a b c {number}\td e {number}\n" for number in range(1000)]
    path.write_text("".join(lines * 200))
    few = tmp_path / "few.tsv"
    few.write_text("".join(lines * 9))
    grown = script(
        """
        import re
        cache, columns = Path(sys.argv[2]), Columns("0", "1")
        peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", STATUS.read_text())[1])
        tokenizer = Quick(tokenizer_of())
        tokenized(pairs(sys.argv[3], columns), tokenizer, longest=64, cache=cache)
        before = peak()
        found = tokenized(pairs(sys.argv[1], columns), tokenizer, longest=64, cache=cache)
        written = peak()
        for start in range(0, len(found), 20_000):
            found.batch(np.arange(start, start + 20), 64)
        print(len(found), written - before, peak() - before)
        """,
        path,
        tmp_path / "cache",
        few,
    )
    assert grown.returncode == 0, grown.stderr
    examples, written, read = map(int, grown.stdout.split())
    assert examples == 200_000
    assert max(written, read) < 8_000, "kilobytes"


def test_a_name_in_the_cache_is_no_hash_that_others_can_compute(opened, tmp_path, monkeypatch):
    """With another key the same texts have another name; with the same one they are found again."""
    usual = {"longest": 5, "cache": tmp_path / "cache"}
    mine = tokenized(opened, tokenizer_of(), **usual).folder
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "other"))
    assert tokenized(opened, tokenizer_of(), **usual).folder != mine
    monkeypatch.undo()
    assert tokenized(opened, tokenizer_of(), **usual).folder == mine


def test_the_usual_cache_is_closed_to_others_even_if_somebody_made_it_first(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    usual = tmp_path / ".cache" / "dpnlp"
    usual.mkdir(parents=True)
    usual.chmod(0o755)
    tokenized(opened, tokenizer_of(), longest=5, cache=usual)
    assert oct(usual.stat().st_mode & 0o777) == "0o700"
