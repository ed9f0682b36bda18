"""Functions and commands of others: what they are given, what is read from them, and what is refused."""

import json

import numpy as np
import pytest

from dpnlp.audit.black_box import audit
from dpnlp.audit.programs import command_of, function_of
from dpnlp.checks import BadInput
from dpnlp.mechanisms.randomness import FixedSeed

FUNCTIONS = """
import random

import jax.numpy as jnp

SEEN = []

def coin(answer):
    SEEN.append(answer)
    return answer if random.random() < 0.6 else 1 - answer

def drawn(answer, seed):
    SEEN.append(seed)
    return random.Random(seed).random() + answer

def optional(answer, scale=2.0):
    return answer * scale

def many(answers, seed=None):
    SEEN.append((answers, seed))
    return [answer + random.random() for answer in answers]

def few(answers):
    return answers[1:]

def array(answer):
    return jnp.ones(2) * answer

NUMBER = 3

BUFFER = [0]

def buffered(answer):
    BUFFER[0] = answer
    return BUFFER

def loud(answer):
    print("noise")
    return answer

def ending(answer):
    raise SystemExit(3)
"""


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """A module of that name in the folder where we are, and what its functions have seen."""
    name = f"survey_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(FUNCTIONS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return name


def seen(name):
    return __import__(name).SEEN


def test_a_function_is_called_for_each_output(survey):
    found = function_of(f"{survey}:coin")(1, 50)
    assert {*found} == {0, 1}
    assert seen(survey) == [1] * 50


def test_a_function_that_takes_a_seed_gets_a_new_one_each_time(survey):
    first, second = (function_of(f"{survey}:drawn", source=FixedSeed(3))(0, 20) for _ in range(2))
    assert first == second
    assert len({*seen(survey)}) == 20
    assert function_of(f"{survey}:drawn")(0, 20) != function_of(f"{survey}:drawn")(0, 20)


def test_a_second_argument_with_a_default_is_no_seed_unless_it_is_called_so(survey):
    assert function_of(f"{survey}:optional")(1, 3) == [2.0] * 3
    function_of(f"{survey}:many", batch=4)(0, 4)
    assert isinstance(seen(survey)[-1][1], int)


def test_a_batch_is_asked_for_by_lists(survey):
    found = function_of(f"{survey}:many", batch=4)(7, 10)
    assert len(found) == 10
    assert [len(answers) for answers, _ in seen(survey)] == [4, 4, 2]
    assert all(7 <= output < 8 for output in found)


def test_arrays_of_other_libraries_are_read(survey):
    (found,) = function_of(f"{survey}:array")(3, 1)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("function", "batch", "sentence"),
    [
        ("none", None, "there is no such function (module"),
        ("NUMBER", None, "it is no function; write it as module:function."),
        ("few", 3, "gave 2 outputs for 3 inputs; it must be as many."),
        ("many", 0, "batch = 0: it must be a whole number of at least 1."),
    ],
)
def test_functions_that_are_refused(survey, function, batch, sentence):
    with pytest.raises(BadInput) as refusal:
        function_of(f"{survey}:{function}", batch)(1, 6)
    assert sentence in str(refusal.value)


def test_an_output_stays_what_it_was_where_the_next_is_written_into_the_same(survey):
    release = function_of(f"{survey}:buffered")
    assert (release(0, 2), release(1, 2)) == ([[0], [0]], [[1], [1]])
    ones = release(0, 1)
    release(1, 1)
    assert ones == [[0]]


def test_a_function_neither_writes_among_our_answers_nor_ends_us_by_the_code_of_a_verdict(survey, tmp_path, capsys):
    assert function_of(f"{survey}:loud")(1, 2) == [1, 1]
    assert capsys.readouterr().out == ""
    (tmp_path / f"{survey}_ends.py").write_text("raise SystemExit(0)")
    for name in (f"{survey}:ending", f"{survey}_ends:f"):
        with pytest.raises(BadInput, match=r"it ends the program \(.\); let it give an output"):
            function_of(name)(1, 1)


@pytest.mark.parametrize("name", ["nowhere_at_all:f", "", ":f", "json"])
def test_names_that_are_no_functions(name):
    with pytest.raises(BadInput, match=f"python = {name}: there is no such function .* write it as module:function"):
        function_of(name)


@pytest.mark.parametrize(
    ("given", "output"),
    [("yes", "yes"), (3, 3), (-0.5, -0.5), ([1, 2.5], [1, 2.5]), ("a text of words", "a text of words"), ("3", 3)],
)
def test_a_command_reads_an_input_and_writes_an_output(given, output):
    assert command_of("cat")(given, 2) == [output, output]
    assert command_of("cat", batch=3)(given, 4) == [output] * 4


def test_what_is_no_number_is_text():
    for text in ("true", "null", '"yes"', "{}", "1 2", ""):
        assert command_of("cat")(text, 1) == [text]
    assert command_of("cat")({"age": 3}, 1) == [json.dumps({"age": 3})]
    assert command_of("printf 'two\\nlines\\n'")("x", 1) == ["two\nlines"]


def test_a_batch_is_one_process():
    assert command_of("awk '{ print NR }'", batch=3)("x", 7) == [1, 2, 3, 1, 2, 3, 1]
    assert command_of("awk '{ print NR }'")("x", 3) == [1, 1, 1]


def test_commands_that_are_refused():
    with pytest.raises(BadInput, match=r"command = exit 4: it ended with exit code 4 \(it said nothing\)"):
        command_of("exit 4")("x", 1)
    with pytest.raises(BadInput, match=r"exit code 1 \(no such table\)"):
        command_of("echo no such table >&2; exit 1")("x", 1)
    with pytest.raises(BadInput, match="batch = 5: the command wrote 1 lines for 5; it must be as many"):
        command_of("head -n 1", batch=5)("x", 5)
    with pytest.raises(BadInput, match="batch = 5: an input of several lines cannot be one of many lines"):
        command_of("cat", batch=5)("x\ny", 5)
    with pytest.raises(BadInput, match=r"command = yes: it writes more than 67,108,864 bytes; let it write one output"):
        command_of("yes")("x", 1)
    with pytest.raises(BadInput, match="what it writes is no text in UTF-8"):
        command_of("printf '\\377'")("x", 1)


def test_a_command_is_audited():
    """The truth with 3/4, ε = ln 3, by awk."""
    seed = "$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')"
    script = f"awk -v seed={seed} 'BEGIN {{ srand(seed) }} {{ print (rand() < 0.75) ? $1 : 1 - $1 }}'"
    release = command_of(script, batch=5000)
    assert audit(release, 1, 0, 0.8).violated
    assert not audit(release, 1, 0, 1.2).violated
