"""Corpora of texts with their authors: what is in them, who is held out, and that nothing is without an author."""

import json
import lzma
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from dpnlp.checks import BadInput
from dpnlp.data.corpora import named
from dpnlp.data.plain import Columns, Text, plain
from dpnlp.data.records import divided

DATA = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the published files, which are not part of the project")


def said(text, sender):
    return {"text": text, "timestamp": "2018-05-02T19:38:15Z", "sender": sender}


CHATS = {
    "one": {"messages": [[said("Hello", "ann"), said(" ", "ann")], [said("Hi, {you}", "bob")]], "ratings": {}},
    "two": {"messages": [[], [said("Bye", "ann")]], "ratings": {}},
}
PLAY = "First Citizen:\nSpeak,\nspeak.\n\n\nTITUS:\n\nAll:\nWe know't: away!\n"


def texts(name, folder, **given):
    return list(named(name, folder, kind="plain", **given).train)


@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_each_message_of_a_chat_is_its_senders(write, tmp_path, packed, indent):
    write(f"dataset.json{packed}", json.dumps(CHATS, indent=indent))
    assert texts("chitchat", tmp_path) == [Text("Hello", "ann"), Text("Hi, {you}", "bob"), Text("Bye", "ann")]
    owners = [record.owner for record in texts("chitchat", tmp_path, owner="conversation")]
    assert owners == ["one", "one", "two"]


def test_each_speech_of_a_play_is_its_speakers(write, tmp_path):
    expected = [Text("Speak,\nspeak.", "First Citizen"), Text("We know't: away!", "All")]
    for name in ("input.txt", "other/data/tinyshakespeare/input.txt", "packed/input.txt.xz"):
        assert texts("plays", write(name, PLAY).parents[2 if "data" in name else 0]) == expected
    assert texts("plays", write("hamlet.txt", PLAY)) == expected


@real
def test_the_published_corpora_have_their_messages_and_authors():
    """The oracle reads the whole file at once."""
    with lzma.open(DATA / "chitchat" / "dataset.json.xz", "rt", encoding="utf-8") as file:
        chats = json.load(file).values()
    messages = [message for chat in chats for turn in chat["messages"] for message in turn if message["text"].strip()]
    found = texts("chitchat", DATA / "chitchat")
    assert found == [(message["text"], message["sender"]) for message in messages]
    assert [len(found), len({text.owner for text in found})] == [258_112, 1315]
    speeches = texts("plays", DATA / "tinyshakespeare")
    play = (DATA / "tinyshakespeare/data/tinyshakespeare/input.txt").read_text().split("\n\n")
    parted = [speech.strip().partition(":\n") for speech in play]
    lines = [(name, map(str.strip, text.split("\n"))) for name, colon, text in parted if colon]
    assert speeches == [("\n".join(spoken), name) for name, spoken in lines]
    assert Counter(text.owner for text in speeches)["ROMEO"] == 163


def test_whoever_is_held_out_is_held_out_with_all_texts(write, tmp_path):
    chat = {str(n): {"messages": [[said(f"text {n}", f"user {n % 50}")]]} for n in range(500)}
    write("dataset.json", json.dumps(chat))
    parts = divided(named("chitchat", tmp_path, kind="plain").train, 0.3)
    train, test = ({text.owner for text in part} for part in parts)
    assert not train & test
    assert len(train | test) == 50
    assert len(test) > 5
    assert sum(len(list(part)) for part in parts) == 500


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            "dataset.json",
            '{"a": {"messages": [[{"text": "x"}]]}}',
            r"line 1: the owner \(sender\) is missing; there ar",
        ),
        (
            "dataset.json",
            '{\n"a":\n{"messages": [[{"text": "x", "sender": null}]]}}',
            r"line 2: the owner \(sender\) is",
        ),
        ("dataset.json", '{"a": {"messages": [[{"text": "x", "sender": " "}]]}}', "is empty; every text must have an"),
        ("dataset.json", '{"a": {"messages": [[{"text": 3, "sender": "b"}]]}}', r"the text \(text\) is a number, and"),
        ("dataset.json", '{"a": {"turns": []}}', "line 1: it is no conversation of ChitChat; take the file as it is"),
        ("dataset.json", '{"a": []}', "line 1: it is no conversation of ChitChat; take the file as it is published."),
        ("dataset.json", '{"a" 1}', r"line 1: it is not JSON \(expected :\)"),
        ("dataset.json", '{"a": {"messages": []}', r"line 1: it is not JSON \(expected , or }\)"),
        ("dataset.json", "[]", r"line 1: it is not JSON \(expected , or }\)"),
        ("dataset.json", "{} {}", "line 1: there is more text after the end of the object; remove it."),
        ("dataset.json", "{}", r"dataset.json: it has no texts; fill it"),
        ("input.txt", "ROMEO:\nAy.\n\nmine own.\n", "line 4: nothing says who speaks; put a line with a name and a"),
        ("input.txt", "\n:\nAy.\n", "line 2: nothing says who speaks; put a line with a name and a colon before it"),
    ],
)
def test_what_has_no_author_is_refused_with_its_line(write, tmp_path, file, content, sentence):
    write(file, content)
    with pytest.raises(BadInput, match=sentence):
        texts("chitchat" if file == "dataset.json" else "plays", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "a.jsonl",
            '{"text": "a", "author": "ann"}\n{"text": "b"}\n',
            r"line 2: the owner \(author\) is missing; there",
        ),
        (
            "a.jsonl",
            '{"text": "a", "author": "ann"}\n{"text": "b", "author": null}\n',
            r"line 2: the owner \(author\) is",
        ),
        (
            "a.jsonl",
            '{"text": "a", "author": "ann"}\n{"text": "b", "author": ""}\n',
            "is empty; every text must have an o",
        ),
        ("a.csv", "text,author\na,ann\nb,\n", r"line 3: the owner \(author\) is empty; every text must have an owner"),
        ("a.jsonl", '{"text": "a", "author": 1.5}\n', "is a number, and must be a text or a whole number"),
        ("a.txt", "a\n", r"a\.txt: it has a text a line and no column author; give a table, such as \.jsonl\."),
    ],
)
def test_a_column_of_authors_must_have_no_gaps(write, name, content, sentence):
    with pytest.raises(BadInput, match=sentence):
        list(plain(write(name, content), Columns(owner="author")))


def test_a_user_with_very_many_texts_stays_a_stream(write, tmp_path):
    """Reading takes about as much memory for one hundred thousand texts as for one thousand."""

    def peak(many):
        write("input.txt", "ann:\nonce\n\n" + f"bob:\n{'word ' * 20}\n\n" * many)
        write("dataset.json", json.dumps({str(n): {"messages": [[said("word " * 20, "bob")]]} for n in range(many)}))
        write("rows.jsonl", "".join(json.dumps(said("word " * 20, "bob")) + "\n" for _ in range(many)))
        streams = [named(name, tmp_path, kind="plain").train for name in ("plays", "chitchat")]
        streams.append(plain(tmp_path / "rows.jsonl", Columns(owner="sender")))
        tracemalloc.start()
        counts = [sum(1 for _ in stream) for stream in streams]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert counts == [many + 1, many, many]
        return most

    assert peak(20_000) < peak(1_000) + 500_000
