"""Every format gives the same pairs, and whatever is wrong with a file is said in one sentence, with its line."""

import csv
import gzip
import importlib
import io
import json
import lzma
import tracemalloc
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.data import formats
from dpnlp.data.formats import Json
from dpnlp.data.pairs import Bounds, Columns, Pair, kept, pairs
from dpnlp.data.records import divided, fewer

ROWS = [
    {"source": "Guten Morgen", "target": "Good morning", "owner": "anna"},
    {"source": 'Er sagte "ja",\tnein', "target": "¿Qué? 日本語 \u2028 \x85 x", "owner": "bert"},
    {"source": " Leer ", "target": "a, b", "owner": "anna"},
]
PAIRS = [Pair(**row) for row in ROWS]
WITH_OWNER = Columns(owner="owner")


def as_csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def as_tsv(rows: list[list[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


HEADER = list(ROWS[0])
CELLS = [list(row.values()) for row in ROWS]
WRITTEN = {
    "a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "b.jsonl": "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS),
    "c.json": json.dumps(ROWS),
    "d.json": "\n" + json.dumps(ROWS, indent=4, ensure_ascii=False) + "\n",
    "e.csv": as_csv([HEADER, *CELLS]),
    "f.csv": "\ufeff" + as_csv([HEADER, *CELLS]),
}


@pytest.mark.parametrize("name", [f"{name}{packed}" for name in WRITTEN for packed in ("", ".gz", ".xz")])
def test_every_format_gives_the_same_pairs_as_often_as_one_likes(write, name):
    opened = pairs(write(name, WRITTEN[name.removesuffix(".gz").removesuffix(".xz")]), WITH_OWNER)
    assert list(opened) == PAIRS
    assert list(opened) == PAIRS
    assert opened.left_out() == 0
    assert [path.name for path in opened.files] == [name]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_aligned_files_are_joined_line_by_line(write, end, packed):
    """No other separator ends a line: U+2028 and the like occur inside texts, and would set the files apart."""
    files = [write(f"t.{side}{packed}", "".join(row[side] + end for row in ROWS)) for side in ("source", "target")]
    assert list(pairs(files, Columns("de", "en"))) == [Pair(row["source"], row["target"], None) for row in ROWS]


def test_the_last_line_need_not_end(write):
    assert list(pairs([write("a.de", "x\ny"), write("a.en", "u\nv\n")], Columns())) == [
        ("x", "u", None),
        ("y", "v", None),
    ]


def test_a_quote_in_tab_separated_values_is_a_character(write):
    path = write("a.tsv", as_tsv([["en", "de"], ['"He said', "Er sagte"], ["yes", 'ja"']]))
    assert list(pairs(path, Columns("de", "en"))) == [("Er sagte", '"He said', None), ('ja"', "yes", None)]


@pytest.mark.parametrize(("name", "written"), [("a.csv", as_csv), ("a.tsv", as_tsv)])
def test_columns_that_are_numbers_have_no_header(write, name, written):
    path = write(name, written([["7", "Hallo", "hello"], ["8", "Welt", "world"]]))
    assert list(pairs(path, Columns("1", "2", owner="0"))) == [("Hallo", "hello", "7"), ("Welt", "world", "8")]


def test_a_dotted_name_reaches_inside_and_a_name_with_a_dot_is_found_too(write):
    nested = write("a.jsonl", '{"id": 5, "translation": {"de": "Hallo", "en": {"us": "hello"}}}')
    assert list(pairs(nested, Columns("translation.de", "translation.en.us", "id"))) == [("Hallo", "hello", "5")]
    flat = write("a.csv", "text.de,text.en\nHallo,hello\n")
    assert list(pairs(flat, Columns("text.de", "text.en"))) == [("Hallo", "hello", None)]


def test_parquet_reads_what_it_needs_and_nested_columns(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"translation": [{"de": row["source"], "en": row["target"]} for row in ROWS] * 1000,
                      "owner": ["anna", "bert", "anna"] * 1000, "image": [b"x"] * 3000})  # fmt: skip
    pq.write_table(table, path, row_group_size=700)
    opened = pairs(path, Columns("translation.de", "translation.en", "owner"))
    assert list(opened) == PAIRS * 1000
    assert list(opened) == PAIRS * 1000
    assert "image" not in next(opened.table.rows())[1]


@pytest.fixture
def saved(tmp_path):
    train = datasets.Dataset.from_list([*ROWS, {"source": "vier", "target": "four", "owner": "eva"}])
    test = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict(train=train, test=test).save_to_disk(tmp_path / "both")
    test.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(test=test).save_to_disk(tmp_path / "alone")
    return tmp_path


def test_a_folder_saved_by_datasets(saved):
    assert list(pairs(saved / "both", WITH_OWNER, "test")) == PAIRS
    assert list(pairs(saved / "both", WITH_OWNER, "train"))[:3] == PAIRS
    assert list(pairs(saved / "one", WITH_OWNER)) == PAIRS
    assert list(pairs(str(saved / "one"), WITH_OWNER, "test")) == PAIRS
    assert list(pairs(saved / "alone", WITH_OWNER)) == PAIRS
    assert all(path.suffix == ".arrow" for path in pairs(saved / "both", WITH_OWNER, "test").files)
    with pytest.raises(BadInput) as refusal:
        pairs(saved / "both", WITH_OWNER)
    assert str(refusal.value) == f"split = None: {saved / 'both'} has train, test; choose one of them."
    with pytest.raises(BadInput, match=r"split = dev: .*both has train, test; choose one of them\.$"):
        pairs(saved / "both", WITH_OWNER, "dev")
    with pytest.raises(
        BadInput, match=r"one, row 1: the source \(src\) is missing; there are source, owner, target\.$"
    ):
        list(pairs(saved / "one", Columns("src")))


def test_a_dataset_without_files_is_refused(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, split: datasets.Dataset.from_list(ROWS))
    with pytest.raises(
        BadInput, match=r"^a/b: `datasets` holds it in memory; save it with `save_to_disk`, and give that"
    ):
        pairs("a/b", WITH_OWNER, "train")


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r": it is not a folder saved by `datasets` \(Directory .*; give such"):
        pairs(tmp_path, Columns())


def test_an_id_of_the_hub_is_a_name_and_a_configuration(monkeypatch, saved):
    asked = []

    def load_dataset(name, configuration, split):
        asked.append((name, configuration, split))
        return datasets.load_from_disk(saved / "one")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert list(pairs("wmt16:de-en", WITH_OWNER, "train[:10%]")) == PAIRS
    assert list(pairs("owner/name", WITH_OWNER, "test")) == PAIRS
    assert asked == [("wmt16", "de-en", "train[:10%]"), ("owner/name", None, "test")]
    assert pairs("a", WITH_OWNER, "train").reading != pairs("a", WITH_OWNER, "train[:10%]").reading


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch):
    def load_dataset(name, configuration, split):
        raise ConnectionError("Couldn't reach 'wmt16' on the Hub\n(offline).")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(BadInput) as refusal:
        pairs("wmt16:de-en", Columns(), "train")
    assert str(refusal.value) == (
        "source = wmt16:de-en: there is no such file, and the Hugging Face hub does not give a dataset of that name "
        "(Couldn't reach 'wmt16' on the Hub (offline)); download it where the hub can be reached, "
        "save it with `save_to_disk`, and give the path of its folder."
    )


@pytest.mark.parametrize("source", ["wmt16:de-en", "a.parquet"])
def test_a_library_that_is_not_installed_is_named(monkeypatch, tmp_path, source):
    def import_module(name):
        raise ImportError(name)

    monkeypatch.chdir(tmp_path)
    Path("a.parquet").touch()
    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(BadInput, match=r"^(datasets|pyarrow): it is not installed, and such data need it; run pip"):
        list(pairs(source, Columns()))


EMPTY = "is empty; correct the pair, or leave out all such with `kept`."
NO_OWNER = "the owner (id) is empty; every pair must have an owner, if any has one."
NOT_JSON = "write one object a line, or one array of objects."
GOOD = '{"source": "a", "target": "b"}\n'


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", "", ": it has no pairs; fill it, or give another file."),
        ("a.json", " \n", ": it has no pairs; fill it, or give another file."),
        ("a.json", "[ \n ]", ": it has no pairs; fill it, or give another file."),
        ("a.csv", "source,target\n", ": it has no pairs; fill it, or give another file."),
        ("a.jsonl.gz", "", ": it has no pairs; fill it, or give another file."),
        (
            "a.jsonl",
            GOOD + '{"source": "a", "target": " \\n"}',
            f", line 2: the target (target) {EMPTY}",
        ),
        (
            "a.csv",
            'source,target\n"two\nlines",b\n,b\n',
            f", line 4: the source (source) {EMPTY}",
        ),
        (
            "a.jsonl",
            '{"source": null, "target": "b"}',
            f", line 1: the source (source) {EMPTY}",
        ),
        ("a.jsonl", '{"source": "a", "target": 3}', ", line 1: the target (target) is a number, and must be a text."),
        ("a.jsonl", '{"source": ["a"], "target": "b"}', ", line 1: the source (source) is a list, and must be a text."),
        ("a.jsonl", '{"source": {}, "target": "b"}', ", line 1: the source (source) is an object, and must be a text."),
        (
            "a.jsonl",
            GOOD + '{"source": "a", "traget": "b", "id": 1}',
            ", line 2: the target (target) is missing; there are traget, source, id.",
        ),
        ("a.jsonl", "{}", ", line 1: the source (source) is missing; the row has no fields."),
        (
            "a.jsonl",
            GOOD + "3",
            ", line 2: it is a number, and must be an object with the fields source and target.",
        ),
        (
            "a.jsonl",
            GOOD + "\n" + '{"source": "a"',
            f", line 3: it is not JSON (expecting ',' delimiter); {NOT_JSON}",
        ),
        (
            "a.json",
            f"[\n{GOOD},\n{GOOD}\n\n{GOOD}]",
            f", line 4: it is not JSON (expected , or ]); {NOT_JSON}",
        ),
        (
            "a.json",
            f"[\n{GOOD},\n{{'source': 1}}]",
            f", line 4: it is not JSON (expecting property name enclosed in double quotes); {NOT_JSON}",
        ),
        (
            "a.json",
            f"[\n{GOOD}",
            f", line 2: it is not JSON (expected , or ]); {NOT_JSON}",
        ),
        ("a.json", f"[\n{GOOD}\n]\n\n[]", ", line 4: there is more text after the end of the array; remove it."),
        (
            "a.jsonl",
            GOOD.encode() + b'{"source": "caf\xe9", "target": "b"}\n',
            ", line 2: the byte 0xe9 is not UTF-8; convert the file to UTF-8.",
        ),
        ("a.json", b'["\n\n\xc3', ", line 3: the byte 0xc3 is not UTF-8; convert the file to UTF-8."),
        ("a.csv.gz", b"\xff\xfea", ", line 1: the byte 0xff is not UTF-8; convert the file to UTF-8."),
        (
            "a.jsonl",
            '{"source": "\\ud83d", "target": "b"}',
            ", line 1: the source (source) holds half of a surrogate pair; write the whole character.",
        ),
        (
            "a.csv",
            "source,target\na,b\na,b,c\n",
            ", line 3: it has 3 fields, and the first line has 2; correct it, and quote texts with commas.",
        ),
        (
            "a.tsv",
            "source\ttarget\na\n",
            ", line 2: it has 1 fields, and the first line has 2; correct it, and take tabs out of texts.",
        ),
        ("a.tsv", "source\ttarget\ttarget\n", ", line 1: two columns are named 'target'; rename one."),
        (
            "a.csv",
            'source,target\na,"b\n',
            ", line 2: its fields cannot be told apart (unexpected end of data); quote it.",
        ),
        (
            "a.txt",
            "a",
            ": a file of pairs must end in .jsonl, .json, .csv, .tsv, .parquet, with or without .gz or .xz; "
            "rename it, or give two paths if it is one side of aligned texts.",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(write, name, content, sentence):
    path = write(name, content)
    with pytest.raises(BadInput) as refusal:
        list(pairs(path, Columns()))
    assert str(refusal.value) == f"{path}{sentence}"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"source": "a", "target": "b"}', "the owner (id) is missing; there are target, source."),
        ('{"id": null, "source": "a", "target": "b"}', NO_OWNER),
        ('{"id": " ", "source": "a", "target": "b"}', NO_OWNER),
        (
            '{"id": 1.5, "source": "a", "target": "b"}',
            "the owner (id) is a number, and must be a text or a whole number.",
        ),
        (
            '{"id": true, "source": "a", "target": "b"}',
            "the owner (id) is a truth value, and must be a text or a whole number.",
        ),
    ],
)
def test_a_pair_without_an_owner_is_refused_where_there_are_owners(write, row, sentence):
    path = write("a.jsonl", '{"id": 1, "source": "a", "target": "b"}\n' + row)
    with pytest.raises(BadInput) as refusal:
        list(pairs(path, Columns(owner="id")))
    assert str(refusal.value) == f"{path}, line 2: {sentence}"


def test_an_object_that_ends_too_early_says_which_fields_it_has(write):
    path = write("a.jsonl", '{"translation": {"de": "a", "english": "b"}}\n')
    with pytest.raises(
        BadInput, match=r"\(translation\.en\) is missing; there are translation\.de, translation\.english\.$"
    ):
        list(pairs(path, Columns("translation.de", "translation.en")))
    with pytest.raises(BadInput, match=r"\(translation\.de\.at\) is missing; translation\.de has no fields\.$"):
        list(pairs(path, Columns("translation.de.at", "translation.en")))


def test_aligned_files_of_different_lengths_are_refused(write):
    short, long = write("a.de", "x\ny\n"), write("a.en", "u\nv\nw\nz")
    for files, counts in (((short, long), (2, 4)), ((long, short), (4, 2))):
        with pytest.raises(BadInput) as refusal:
            list(pairs(files, Columns()))
        assert str(refusal.value) == (
            f"{files[0]}: it has {counts[0]} lines, and {files[1]} has {counts[1]}; the files must have the same "
            "number, so align them again."
        )


def test_a_line_without_text_is_named_by_the_file_that_has_it(write):
    files = write("a.de", "x\ny\n"), write("a.en", "u\n \n")
    with pytest.raises(BadInput) as refusal:
        list(pairs(files, Columns()))
    assert str(refusal.value).startswith(f"{files[1]}, line 2: the target (target) is empty;")


@pytest.mark.parametrize("names", [("a.de",), ("a.de", "a.en", "a.fr")])
def test_aligned_files_are_two(write, names):
    with pytest.raises(BadInput, match=rf"^source = {len(names)} files: aligned texts are two"):
        pairs([write(name, "x") for name in names], Columns())


def test_two_tables_are_not_aligned_texts(write):
    with pytest.raises(
        BadInput, match=r"b\.csv\.gz: two files are read as aligned lines of text, not as \.csv; give one\.$"
    ):
        pairs([write("a.de", "x"), write("b.csv.gz", "y")], Columns())


def test_a_file_that_is_not_there_is_refused_when_it_is_opened(tmp_path):
    for source in (tmp_path / "a.jsonl", [tmp_path / "a.de", tmp_path / "a.en"], tmp_path / "a.parquet"):
        with pytest.raises(BadInput, match=r"/a\.\w+: there is no such file; check the path\.$"):
            pairs(source, Columns())


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_a_file_that_disappears_is_refused_when_it_is_read(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.touch()
    opened = pairs(path, Columns())
    path.unlink()
    for _ in range(2):
        with pytest.raises(BadInput) as refusal:
            list(opened)
        assert str(refusal.value) == f"{path}: there is no such file; check the path."
        monkeypatch.setattr(Path, "is_file", lambda _: True)  # It may also go just after it was looked for.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", b"not packed"),
        ("a.jsonl.gz", gzip.compress(GOOD.encode() * 99, mtime=0)[:-20]),
        ("a.jsonl.xz", b"not packed"),
        ("a.jsonl.xz", lzma.compress(GOOD.encode() * 99)[:-20]),
    ],
)
def test_a_damaged_archive_is_one_sentence(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput, match=rf"{name}: it cannot be unpacked \(.+\); compress the text again\.$"):
        list(pairs(path, Columns()))


def test_a_damaged_parquet_file_is_one_sentence(write):
    with pytest.raises(BadInput, match=r"a\.parquet: it cannot be read \(.*\); check the file"):
        list(pairs(write("a.parquet", b"PAR1 nothing"), Columns()))


def test_kept_counts_words_and_leaves_out_the_empty(write):
    texts = [("a", "b"), ("", "b"), ("a b c", "d"), ("a b", "c d e f"), ("a b c", "d e f"), ("a", " ")]
    path = write("a.jsonl", "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in texts))
    opened = pairs(path, Columns())

    def left(**bounds):
        return [tuple(pair[:2]) for pair in kept(opened, **bounds)]

    assert left() == [texts[0], *texts[2:5]]
    assert left(shortest=2) == [texts[3], texts[4]]
    assert left(longest=3) == [texts[0], texts[2], texts[4]]
    assert left(ratio=2) == [texts[0], texts[3], texts[4]]
    assert left(ratio=1.99) == [texts[0], texts[4]]
    assert [tuple(pair[:2]) for pair in kept(kept(opened, shortest=2), longest=3)] == [texts[4]]
    assert kept(opened, ratio=2).left_out() == 3
    assert kept(kept(opened, shortest=2), longest=3).left_out() == 5
    assert kept(opened, ratio=2).reading != kept(opened, ratio=3).reading != opened.reading
    with pytest.raises(BadInput, match=r"none of its pairs is within the bounds; widen them, or give another file\.$"):
        list(kept(opened, shortest=9))


@pytest.mark.parametrize(
    "bounds",
    [{"shortest": 0}, {"shortest": 3, "longest": 2}, {"longest": 1.5}, {"ratio": 0.9}, {"ratio": float("nan")}],
)
def test_bounds_that_make_no_sense_are_refused(bounds):
    with pytest.raises(BadInput, match=r"^(shortest|longest|ratio) = "):
        Bounds(**bounds)


VALUES = st.recursive(
    st.text() | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)


@given(
    st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), max_size=5), st.integers(1, 40), st.booleans()
)
def test_an_array_is_read_in_pieces_as_json_reads_it_whole(tmp_path_factory, objects, piece, indented):
    path = tmp_path_factory.mktemp("json") / "a.json"
    text = json.dumps(objects, indent=2 if indented else None, ensure_ascii=indented)
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_PIECE", piece)
        rows = list(Json((path,)).rows())
    assert [value for _, value in rows] == json.loads(text)
    for number, value in rows:
        assert text.split("\n")[number - 1].strip()[:1] == "{" or not value or not indented


def test_an_array_in_one_line_is_not_held_in_memory(write):
    path = write("a.json", json.dumps([{"source": "x" * 1000, "target": "y"}] * 10_000))
    tracemalloc.start()
    try:
        assert sum(1 for _ in pairs(path, Columns())) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 < path.stat().st_size
    finally:
        tracemalloc.stop()


def test_a_share_is_held_out_by_owner_and_nobody_is_in_both_parts(tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"source": f"a {n}", "target": f"b {n}", "who": f"owner {n // 4}"} for n in range(400)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    everything = pairs(file, Columns(owner="who"))
    most, few = map(list, divided(everything, 0.25))
    assert sorted(most + few) == sorted(everything)
    assert not {pair.owner for pair in most} & {pair.owner for pair in few}
    assert 0.15 < len(few) / 400 < 0.35
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:200]))
    assert set(divided(everything, 0.25)[1]) == {pair for pair in few if pair in set(everything)}


def test_fewer_owners_are_some_of_the_others_whoever_is_held_out(tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"source": f"a {n}", "target": f"b {n}", "who": f"owner {n // 4}"} for n in range(1600)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    everything = pairs(file, Columns(owner="who"))
    for stream in (everything, *divided(everything, 0.25)):
        owners = {pair.owner for pair in stream}
        half, quarter = ({pair.owner for pair in fewer(stream, share)} for share in (0.5, 0.25))
        assert quarter < half < owners
        assert 0.35 < len(half) / len(owners) < 0.65
        assert 0.15 < len(quarter) / len(owners) < 0.35
        assert set(fewer(stream, 0.5)) == {pair for pair in stream if pair.owner in half}


def test_a_share_of_pairs_without_owners_is_told_by_the_pairs_and_blank_ones_are_still_refused(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"source": f"a {n}", "target": "b"}) + "\n" for n in range(200)))
    most, few = map(list, divided(pairs(file), 0.5))
    assert 70 < len(few) < 130
    assert len(most) + len(few) == 200
    file.write_text('{"source": "a", "target": " "}\n')
    with pytest.raises(BadInput, match="is empty"):
        list(divided(pairs(file), 0.5)[0])
