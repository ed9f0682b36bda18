"""Files and folders are whole or not there, one process at a time has a place, and what a killed one left is swept."""

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpnlp.atomic import Growing, Taken, alone, is_passing, sweep, whole_folder, write
from dpnlp.checks import BadInput


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Other:
    """Another process, which does something, says so, and waits until it is killed or told to go on."""

    def __init__(self, folder, body):
        code = "from pathlib import Path\nfrom dpnlp.atomic import *\nplace = Path('place')\n" + textwrap.dedent(body)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, text=True, **pipes)
        assert self.process.stdout.readline() == "here\n"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._end()

    def _end(self):
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


HAS_IT = "with alone(place): print('here', flush=True); input()"
WRITES = "with prepared(place, b'theirs') as put: print('here', flush=True); input(); put()"
MAKES = """
with whole_folder(place) as whole:
    (whole / "theirs").touch()
    print('here', flush=True)
    input()
"""


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path):
    file = tmp_path / "file"
    for content, expected in (("ä\n", "ä\n".encode()), (b"\xff", b"\xff"), ("", b"")):
        write(file, content)
        assert file.read_bytes() == expected
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_has_the_mode_that_is_asked_for_or_the_usual_one(tmp_path, mode):
    write(tmp_path / "asked", "", mode=mode)
    write(tmp_path / "usual", "")
    (tmp_path / "made").touch()
    assert stat.S_IMODE((tmp_path / "asked").stat().st_mode) == mode
    assert (tmp_path / "usual").stat().st_mode == (tmp_path / "made").stat().st_mode


def test_a_fresh_file_is_written_once_whoever_wants_to(tmp_path):
    barrier, taken = threading.Barrier(8), []

    def begin(number):
        barrier.wait()
        try:
            write(tmp_path / "file", str(number), fresh=True)
        except Taken:
            taken.append(number)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {int((tmp_path / "file").read_text()), *taken} == set(range(8))
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_what_cannot_be_written_is_one_sentence_and_leaves_what_was_there(tmp_path, monkeypatch, failing, code):
    write(tmp_path / "file", "before")

    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        if failing == "write":
            patched.setattr(os, "fdopen", refuse)
        else:
            patched.setattr(os, failing, refuse)
        with pytest.raises(BadInput, match=rf"file: it cannot be written \({os.strerror(code)}\); "):
            write(tmp_path / "file", "after")
    assert (tmp_path / "file").read_text() == "before"
    assert names(tmp_path) == ["file"]


def test_who_is_killed_while_writing_leaves_nothing_that_the_next_writer_does_not_remove(tmp_path):
    place = tmp_path / "place"
    write(place, "ours")
    Other(tmp_path, WRITES).kill()
    assert names(tmp_path) == [".place.dpnlp-unfinished", "place"]
    assert place.read_text() == "ours"
    write(place, "ours again")
    assert place.read_text() == "ours again"
    assert names(tmp_path) == ["place"]


def test_a_file_is_written_by_one_after_the_other(tmp_path):
    other = Other(tmp_path, WRITES)
    ours = threading.Thread(target=write, args=(tmp_path / "place", "ours"))
    ours.start()
    ours.join(0.2)
    assert ours.is_alive(), "it waits"
    assert not (tmp_path / "place").exists()
    other.go_on()
    ours.join()
    assert (tmp_path / "place").read_text() == "ours"
    assert names(tmp_path) == ["place"]


def test_a_folder_is_there_when_all_is_in_it_and_not_if_that_fails(tmp_path):
    place = tmp_path / "place"

    def broken_off():
        with whole_folder(place) as whole:
            (whole / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert names(tmp_path) == []
    with whole_folder(place, mode=0o700) as whole:
        (whole / "inner").mkdir()
        (whole / "inner" / "file").write_text("all")
        assert not place.exists()
    assert names(tmp_path) == ["place"]
    assert (place / "inner" / "file").read_text() == "all"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    with pytest.raises(Taken, match="there is something in it already"), whole_folder(place):
        pass
    assert names(place) == ["inner"]


def test_a_folder_that_another_process_makes_is_waited_for_or_refused(tmp_path):
    place = tmp_path / "place"
    other = Other(tmp_path, MAKES)
    with pytest.raises(BadInput, match="somebody makes it"), whole_folder(place, busy="somebody makes it"):
        pass
    said = []

    def make():
        try:
            with whole_folder(place):
                pass
        except Taken:
            said.append("taken")

    ours = threading.Thread(target=make)
    ours.start()
    ours.join(0.2)
    assert ours.is_alive(), "it waits"
    other.go_on()
    ours.join()
    assert said == ["taken"]
    assert names(tmp_path) == ["place"]
    assert names(place) == ["theirs"]


def test_who_is_killed_while_making_a_folder_leaves_nothing_that_the_next_one_does_not_remove(tmp_path):
    for nextone in ("place", "another"):
        Other(tmp_path, MAKES).kill()
        assert names(tmp_path) == [".place.dpnlp-lock", ".place.dpnlp-unfinished"]
        with whole_folder(tmp_path / nextone):
            pass
        assert names(tmp_path) == [nextone]
        (tmp_path / nextone).rmdir()


def test_one_process_at_a_time_has_a_place_and_a_killed_one_has_it_no_more(tmp_path):
    place = tmp_path / "place"
    other = Other(tmp_path, HAS_IT)
    with pytest.raises(BadInput, match="taken"), alone(place, "taken"):
        pass
    other.kill()
    with alone(place, "taken"), pytest.raises(BadInput, match="this too"), alone(place, "this too"):
        pass
    assert names(tmp_path) == []


def test_many_processes_pass_a_place_on_and_never_have_it_together(tmp_path):
    code = """
    import os, time
    for _ in range(30):
        with alone(place):
            os.close(os.open("inside", os.O_CREAT | os.O_EXCL))
            time.sleep(0.001)
            os.unlink("inside")
    """
    begin = f"print('here', flush=True)\ninput()\n{textwrap.dedent(code)}"
    others = [Other(tmp_path, begin) for _ in range(4)]
    for other in others:
        other.process.stdin.write("\n")
        other.process.stdin.flush()
    for other in others:
        other._end()
    assert [other.process.returncode for other in others] == [0] * 4
    assert names(tmp_path) == []


def test_sweeping_leaves_alone_what_somebody_is_at_and_what_is_not_ours(tmp_path):
    for name in (".git", "file", ".place.lock", "x.dpnlp-lock"):
        (tmp_path / name).touch()
    (tmp_path / ".dead.dpnlp-unfinished").mkdir()
    (tmp_path / ".dead.dpnlp-unfinished" / "file").touch()
    (tmp_path / ".gone.dpnlp-unfinished").write_text("half")
    (tmp_path / ".gone.dpnlp-lock").touch()
    others = [Other(tmp_path, MAKES), Other(tmp_path, WRITES.replace("place", "Path('second')"))]
    busy = [".place.dpnlp-lock", ".place.dpnlp-unfinished", ".second.dpnlp-unfinished"]
    sweep(tmp_path)
    assert names(tmp_path) == sorted([".git", ".place.lock", *busy, "file", "x.dpnlp-lock"])
    assert [name for name in names(tmp_path) if is_passing(name)] == busy
    for other in others:
        other.kill()
    sweep(tmp_path)
    assert names(tmp_path) == [".git", ".place.lock", "file", "x.dpnlp-lock"]


def test_a_link_in_the_place_of_what_is_unfinished_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / ".file.dpnlp-unfinished").symlink_to("victim")
    with pytest.raises(BadInput, match="file: it cannot be written"):
        write(tmp_path / "file", "ours")
    assert (tmp_path / "victim").read_text() == "theirs"


# Files that grow

LINES = st.lists(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=3))


class Killed(BaseException):
    """The end of a process: nothing changes the disk after it."""


def dying(number, monkeypatch):
    """Ends the process before its `number`th change of the disk; returns whether it lived on."""
    left = [number]

    def counted(function):
        def called(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return function(*arguments, **options)

        return called

    for name in ("unlink", "replace", "fsync", "truncate", "fdopen"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return left


@settings(max_examples=30)
@given(LINES, st.lists(st.integers(0, 25), max_size=6), st.integers(0, 9))
def test_a_growing_file_has_each_line_once_however_often_its_writers_are_killed(tmp_path_factory, batches, kills, torn):
    """A line may be new in each life, as noise is: once any byte of it is in the file, it stays as it is."""
    file, seen = tmp_path_factory.mktemp("growing") / "lines", []

    def grow(life):
        growing = Growing(file)
        ends = [0]
        for batch in batches:
            ends.append(ends[-1] + len(batch))
        assert growing.lines in ends, "lines come by whole batches"
        for start, batch in zip(ends, batches, strict=False):
            if growing.lines == start and batch:
                growing.append([f"{life} {line}" for line in batch])

    for life, kill in enumerate((*kills, 10**6)):
        with pytest.MonkeyPatch.context() as patched:
            left = dying(kill, patched)
            try:
                grow(life)
            except Killed:
                pass
            else:
                assert left[0] >= 0
        if (log := file.with_name(".lines.next")).exists():  # The last write may have been cut short.
            begun = int(log.read_bytes().partition(b"\n")[0])
            os.truncate(file, max(begun, len(b"".join(seen)), file.stat().st_size - torn))
        now = file.read_bytes() if file.exists() else b""
        assert now.startswith(b"".join(seen)), "what was there never changes"
        seen = [now]
    lines = [line.partition(" ")[2] for line in file.read_bytes().decode().split("\n")[:-1]]
    assert lines == [line for batch in batches for line in batch]
    assert names(file.parent) == ["lines"]


def test_half_a_line_that_nothing_is_known_of_is_cut_off(tmp_path):
    (tmp_path / "lines").write_bytes(b"one\ntwo\nhal")
    growing = Growing(tmp_path / "lines")
    assert growing.lines == 2
    growing.append(["three"])
    assert (tmp_path / "lines").read_bytes() == b"one\ntwo\nthree\n"


def test_with_a_log_of_its_own_a_file_goes_on_only_as_it_was_last_written(tmp_path):
    file, log = tmp_path / "lines", tmp_path / "log"
    with pytest.raises(BadInput, match="lines"):
        Growing(file, log)
    log.write_bytes(b"0\n")
    Growing(file, log).append(["one"])
    first, logged = file.read_bytes(), log.read_bytes()
    Growing(file, log).append(["two", "three"])
    last = file.read_bytes()
    for other in (b"", b"on", last + b"four\n"):
        file.write_bytes(other)
        with pytest.raises(BadInput, match=r"lines: it is not as it was last written, but a copy"):
            Growing(file, log)
        assert file.read_bytes() == other
    file.unlink()
    with pytest.raises(BadInput, match="it is not as it was last written"):
        Growing(file, log)
    assert names(tmp_path) == ["log"]
    for torn in (first, first + b"two\nth", last + b"fo"):  # A writer was killed; what it had drawn is written again.
        file.write_bytes(torn)
        assert Growing(file, log).lines == 3
        assert file.read_bytes() == last
    log.write_bytes(logged)  # The log itself is an older one.
    with pytest.raises(BadInput, match="it is not as it was last written"):
        Growing(file, log)
