"""JSON and YAML of strangers, and texts that try to steer a terminal."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.foreign import LARGEST, parse_json, parse_yaml, visible

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
settings = st.dictionaries(st.text("abc_", min_size=1), values, max_size=5)


@given(values)
def test_ordinary_json_is_read_as_json_reads_it(value):
    assert parse_json(json.dumps(value)) == value


@given(settings)
def test_ordinary_yaml_is_read_as_yaml_reads_it(entries):
    text = yaml.safe_dump(entries)
    if not any(f"&id{number}" in text for number in range(10)):
        assert parse_yaml(text, "FILE") == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**5,
        '{"a":' * 10**5,
        "[" * 101 + "]" * 101,
        '{"a":' * 500 + "1" + "}" * 500,
        "9" * 5000,
        '{"a": ' + "1" * 5000 + "}",
        "NaN",
        "[Infinity]",
        '{"a": -Infinity}',
        "",
        "{",
        '"\\ud8',
    ],
)
def test_json_that_is_too_deep_too_long_or_none_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_brackets_in_texts_are_not_deep():
    assert parse_json(json.dumps(["[{" * 1000, '\\"[' * 1000])) == ["[{" * 1000, '\\"[' * 1000]
    assert parse_json("[" + ",".join(["[]"] * 1000) + "]") == [[]] * 1000


LAUGHS = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: &a [*a]", r"\*a in line 1 stands for something else; write that out"),
        (LAUGHS, r"\*a0 in line 2 stands for something else"),
        ("a: !!python/object/apply:os.system [ls]", "a tag, .*os.system, stands in line 1"),
        ("a: !!python/name:os.system", "a tag"),
        ("a: !own 3", "a tag, !own, stands in line 1"),
        ("? [a, b]\n: 1", "is a key in line 1; write settings as key: value"),
        ("{a: 1}: 2", "is a key in line 1"),
        ("a: 1\nb:\n  - {c: 1, c: 2}", "c stands there again in line 3"),
        ("[" * 10**4, "lists and mappings inside one another"),
        ("a: " + "{a: " * 101 + "1" + "}" * 101, "lists and mappings inside one another"),
        ("\n".join(" " * n + "a:" for n in range(200)), "lists and mappings inside one another"),
        (f"a: {'9' * 5000}", "a number or a date in it cannot be read"),
        ("a: 2024-13-45", "a number or a date in it cannot be read"),
        ("a: 1\n---\nb: 2", "not valid YAML; correct it near line 2"),
        ("a: [", "not valid YAML"),
        ("\0", "not valid YAML"),
        ("- a", "it must hold settings as key: value"),
        ("just words", "it must hold settings as key: value"),
        ("# " + "x" * LARGEST, "more than 1,048,576 characters"),
    ],
)
def test_yaml_that_is_a_trick_is_refused_in_a_sentence(text, sentence):
    with pytest.raises(BadInput, match=f"^FILE: .*{sentence}"):
        parse_yaml(text, "FILE")


@given(st.text(st.characters(blacklist_categories=[])))
def test_nothing_that_is_shown_steers_a_terminal(text):
    shown = visible(text)
    assert not {*shown} & {*map(chr, [*range(9), *range(11, 32), *range(127, 160)])}
    assert not any(0x202A <= ord(sign) <= 0x202E or 0xD800 <= ord(sign) <= 0xDFFF for sign in shown)
    shown.encode()


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_what_people_write_is_shown_as_it_is(text):
    assert visible(text) == text


@given(values)
def test_json_stays_json_when_it_is_shown(value):
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value


def test_what_a_terminal_would_obey_is_spelled_out():
    assert visible("a\x1b[31mb\r\x07\u202ec") == "a\\u001b[31mb\\u000d\\u0007\\u202ec"
