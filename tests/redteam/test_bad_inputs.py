"""Bad inputs: each is refused in one sentence, with exit code 2, in little time, and leaves nothing behind."""

import contextlib
import io
import re
import shutil
import signal

import pytest

from dpnlp.cli.main import main

from .bad_inputs import sample, settings, settings_in_files, tree
from .conftest import THOROUGH

SECONDS = 20
SETTINGS = list(settings())
IN_FILES = list(settings_in_files())


class TooLong(BaseException):
    """No refusal within the time."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with data, a model and a run, in which commands are run; the home of who runs them lies in it, too."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name in ("own", "temporary"):
            (home / name).mkdir()
        patch.setenv("HOME", str(home / "own"))
        patch.setenv("DPNLP_HOME", str(home / "own" / "dpnlp"))
        patch.setenv("TMPDIR", str(home / "temporary"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("tempfile.tempdir", None)
        yield home


def run(line):
    """The exit code of a command line, and what it wrote."""
    out, err = io.StringIO(), io.StringIO()

    def late(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(line))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, out.getvalue(), err.getvalue()


def faults(home, bad):
    """What is wrong with how a bad input is met; nothing if all is well."""
    for name, content in bad.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)
    before = tree(home)
    try:
        code, out, err = run(bad.line)
    except TooLong:
        return [f"no answer within {SECONDS} seconds"]
    finally:
        after = tree(home)
        shutil.rmtree(home / "bad", ignore_errors=True)
        for path in set(after) - set(before):
            if (home / path).is_dir():
                shutil.rmtree(home / path, ignore_errors=True)
            else:
                (home / path).unlink(missing_ok=True)
    if code == 0 and bad.may_pass:
        return []
    return [
        *_faults(bad, code, out, err),
        *(f"left behind: {path}" for path in after if before.get(path) != after[path]),
    ]


def _faults(bad, code, out, err):
    lines = [line for line in err.splitlines() if not line.startswith("dpnlp: note: ")]
    if code != 2:
        yield f"exit code {code}: {err[-300:]}"
    elif len(lines) != 1 or not lines[0].startswith("dpnlp: "):
        yield f"not one sentence: {err[-500:]!r}"
    else:
        if not lines[0].endswith((".", "?")) or len(lines[0]) > 1200:
            yield f"no sentence: {lines[0]!r}"
        if re.search(r"\b\w*(Error|Exception)\b", lines[0]):
            yield f"it names a class: {lines[0]!r}"
        if bad.says not in lines[0]:
            yield f"it does not name {bad.says}: {lines[0]!r}"
        if not lines[0].isprintable():
            yield f"it steers the terminal: {lines[0]!r}"
    if out:
        yield f"on stdout: {out[:200]!r}"


def refuse_all(home, cases):
    """Fails with a line for each of the bad inputs that is not met as it should be."""
    found = [f"{bad.name}: {' '.join(wrong)}" for bad in cases if (wrong := faults(home, bad))]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_every_setting_out_of_its_range_is_refused(home):
    refuse_all(home, SETTINGS if THOROUGH else sample(SETTINGS, 400))


def test_every_setting_of_a_wrong_type_in_a_file_is_refused(home):
    refuse_all(home, IN_FILES if THOROUGH else sample(IN_FILES, 200))
