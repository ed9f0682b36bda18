"""The fingerprint: it tells every two states of the data apart, and gives nothing of the data away."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.accounting.fingerprint import fingerprint, key_path
from dpnlp.accounting.ledger import Ledger
from dpnlp.checks import BadInput
from dpnlp.events import Gaussian
from dpnlp.guarantee import Adjacency, Unit


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"text": "a secret"}\n')
    return path


def charge(dataset: Path, state: str = "ab" * 32) -> None:
    Ledger.beside(dataset).charge("run", Gaussian(4.0), Unit.EXAMPLE, Adjacency.ADD_REMOVE, state)


def test_a_missing_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^dataset = .*absent: there is no such file or directory; check the path\.$"):
        fingerprint(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


_FILES = st.dictionaries(
    st.sampled_from(["a", "b", "ab", "d/a", "d/b", "da"]), st.sampled_from([b"", b"a", b"ba", b"b"])
)


@settings(max_examples=50)
@given(_FILES, _FILES)
def test_two_directories_have_one_fingerprint_only_if_they_are_equal(
    one: dict[str, bytes], other: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        for path, files in ((first, one), (second, other)):
            path.mkdir()
            fill(path, files)
            Path(folder, f"{path.name}.ledger.key").write_bytes(bytes(range(32)))
        assert (fingerprint(first) == fingerprint(second)) == (one == other)


def test_a_fingerprint_follows_the_content(dataset: Path) -> None:
    before = fingerprint(dataset)
    assert fingerprint(dataset) == before
    assert re.fullmatch("[0-9a-f]{64}", before)
    content = dataset.read_bytes()
    dataset.write_bytes(content + b" ")
    assert fingerprint(dataset) != before
    dataset.write_bytes(content)
    assert fingerprint(dataset) == before


def test_the_order_of_the_file_system_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = fill(tmp_path / "corpus", {name: name.encode() for name in ("c", "a", "b/d", "b/c")})
    before = fingerprint(corpus)
    listed = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda path, pattern: sorted(listed(path, pattern), reverse=True))
    assert fingerprint(corpus) == before


def test_ledgers_their_anchors_and_keys_are_no_part_of_the_data(tmp_path: Path) -> None:
    corpus = fill(tmp_path / "corpus", {"train.jsonl": b"x"})
    before = fingerprint(corpus)
    fingerprint(corpus / "train.jsonl")
    charge(corpus / "train.jsonl")
    assert len(list(corpus.iterdir())) == 4
    assert fingerprint(corpus) == before


def test_what_a_crash_leaves_beside_a_ledger_is_no_part_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = fill(tmp_path / "corpus", {"train.jsonl": b"x"})
    before = fingerprint(corpus)

    def power_failure(*_: object) -> None:
        raise OSError("power failure")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda path: None)
        patched.setattr(os, "replace", power_failure)
        with pytest.raises(BadInput, match="power failure"):
            fingerprint(corpus / "train.jsonl")
        with pytest.raises(BadInput, match="power failure"):
            charge(corpus / "train.jsonl")
    temporary = {path.name.partition(".ledger")[2] for path in corpus.iterdir() if path.name.startswith(".")}
    assert temporary == {".key.dpnlp-unfinished", ".head.dpnlp-unfinished"}
    assert fingerprint(corpus) == before


def test_the_key_is_a_secret_of_its_own(dataset: Path) -> None:
    old = os.umask(0)
    try:
        value = fingerprint(dataset)
    finally:
        os.umask(old)
    charge(dataset, value)
    assert sorted(path.name for path in dataset.parent.iterdir()) == [
        "corpus.jsonl",
        "corpus.jsonl.ledger",
        "corpus.jsonl.ledger.head",
        "corpus.jsonl.ledger.key",
    ]
    assert key_path(Ledger.beside(dataset)).stat().st_mode & 0o777 == 0o600
    ledger = Ledger.beside(dataset)
    key, content = key_path(Ledger.beside(dataset)).read_bytes(), dataset.read_bytes()
    written = ledger.path.read_bytes() + ledger.head_path.read_bytes()
    assert len(key) == 32
    assert key not in written
    assert key.hex().encode() not in written
    for name in hashlib.algorithms_guaranteed - {"shake_128", "shake_256"}:
        assert hashlib.new(name, content).hexdigest()[:64].encode() not in written
    assert hashlib.blake2b(content, digest_size=32).hexdigest().encode() not in written
    key_path(Ledger.beside(dataset)).unlink()
    assert fingerprint(dataset) != value


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_damaged_key_is_named(dataset: Path, size: int) -> None:
    key_path(Ledger.beside(dataset)).write_bytes(bytes(size))
    message = (
        f"ledger.key: the key has {size} bytes and must have 32; restore it from a copy, or delete it, after which "
    )
    with pytest.raises(BadInput, match=re.escape(message)):
        fingerprint(dataset)
    assert key_path(Ledger.beside(dataset)).read_bytes() == bytes(size)


def test_of_two_keys_made_at_once_the_first_stays(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bytes(range(32))

    def while_another_process_is_faster(size: int) -> bytes:
        key_path(Ledger.beside(dataset)).write_bytes(first)
        return bytes(size)

    monkeypatch.setattr(os, "urandom", while_another_process_is_faster)
    assert fingerprint(dataset) == fingerprint(dataset)
    assert key_path(Ledger.beside(dataset)).read_bytes() == first
    assert sorted(dataset.parent.iterdir()) == [dataset, key_path(Ledger.beside(dataset))]


def test_a_data_set_of_two_files_has_one_key_and_changes_with_either(tmp_path):
    files = [tmp_path / "train.de", tmp_path / "train.en"]
    for file in files:
        file.write_text("a")
    before = fingerprint(*files)
    assert fingerprint(*files) == before
    assert not (tmp_path / "train.en.ledger.key").exists()
    files[1].write_text("b")
    assert fingerprint(*files) != before


def test_the_key_is_beside_the_ledger_where_that_lies_elsewhere(tmp_path):
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "corpus.jsonl"
    file.write_text("a")
    ledger = Ledger(tmp_path / "other.ledger")
    assert fingerprint(file, ledger=ledger) == fingerprint(file, ledger=ledger)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "other.ledger.key"]
    assert list((tmp_path / "data").iterdir()) == [file]
