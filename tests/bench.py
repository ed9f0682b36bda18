"""A bench for trying changes of the code: a copy of the project, and the tests that should notice a change.

The libraries are loaded once, in a process that is forked for every change, and the quickest tests come first: most
changes are noticed within a second.
"""

import multiprocessing
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TypeVar

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
COPIED = ("src", "tests", "pyproject.toml")
LIBRARIES = ("numpy", "scipy.stats", "scipy.optimize", "dp_accounting", "hypothesis", "pytest", "jax", "optax")
LIBRARIES += ("flax.nnx", "orbax.checkpoint", "tokenizers", "safetensors.numpy")
Item = TypeVar("Item")
Took = dict[str, float]
_FORKING = multiprocessing.get_context("forkserver")


LEAST, TIMES = 20, 8
"""How long a test may take: at least so many seconds, and so many times what it takes without any change."""
_ENDLESS = 124


@dataclass(frozen=True)
class Outcome:
    """What the tests say: pytest's exit code, None where one has no end; what failed; and how long each took."""

    code: int | None
    failed: tuple[str, ...]
    took: dict[str, float]
    seconds: float
    shown: str

    @property
    def noticed(self) -> str:
        """What notices a change: the first test that fails, or an empty string."""
        return self.failed[0] if self.failed else "no end" if self.code is None else ""


class Bench:
    """A copy of the project in which one change at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(source, folder / name)

    def change(self, file: str, text: str, tests: Sequence[str], seconds: float, took: Took | None = None) -> Outcome:
        """What the tests say, up to the first that fails, while a file under src/dpnlp has another text."""
        path = self.folder / "src/dpnlp" / file
        source = path.read_text(encoding="utf-8")
        try:
            _write(path, text)
            return self.run(["-x", *tests], seconds, took)
        finally:
            _write(path, source)

    def run(self, tests: Sequence[str], seconds: float, took: Took | None = None) -> Outcome:
        """What these tests say; `took` is how long they take. Those that cannot be run end the program: they would
        prove nothing."""
        begun = time.monotonic()
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
            process = _FORKING.Process(target=_test, args=(str(self.folder), list(tests), output.name, took or {}))
            process.start()
            process.join(seconds)
            code = process.exitcode
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.join()
            shown = output.read()
        failed = tuple(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", shown, re.MULTILINE))
        if code is not None and code > 0 and not failed:
            sys.exit(f"{' '.join(tests)}: the tests cannot be run.\n{shown[-2000:]}")
        if code is not None and code < 0:  # It was killed for what it did, as for the memory that it took.
            failed = (f"signal {-code}",)
        found = {test: float(seconds) for seconds, test in re.findall(r"^TOOK (\S+) (.+)$", shown, re.MULTILINE)}
        return Outcome(None if code == _ENDLESS else code, failed, found, time.monotonic() - begun, shown)


def on_benches(attempt: Callable[[Bench, Item], None], items: Iterable[Item], jobs: int) -> None:
    """Tries all of them, so many at once. The first exception ends it."""
    _prepare()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as workers:
        free: Queue[Bench] = Queue()
        for number in range(jobs):
            free.put(Bench(Path(folder) / str(number)))

        def on_a_free_one(item: Item) -> None:
            bench = free.get()
            try:
                attempt(bench, item)
            finally:
                free.put(bench)

        try:
            for attempted in [workers.submit(on_a_free_one, item) for item in items]:
                attempted.result()
        finally:
            workers.shutdown(cancel_futures=True)


def _prepare() -> None:
    """Sets JAX up as the tests do, before it is loaded."""
    runpy.run_path(str(HERE / "conftest.py"))
    _FORKING.set_forkserver_preload(list(LIBRARIES))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


class _Stopwatch:
    """Begins with the quickest tests, measures all, and ends with one that takes far longer than without a change."""

    def __init__(self, took: Took, output: str) -> None:
        self.took, self.output = took, output

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        whole = Counter[str]()
        for item in items:
            whole[item.location[0]] += self.took.get(item.nodeid, 0.0)  # Tests of a file share what they set up.
        items.sort(key=lambda item: (whole[item.location[0]], item.location[0], self.took.get(item.nodeid, 0.0)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        def end(*_: object) -> None:
            self._tell(f"FAILED {item.nodeid} - no end")
            os._exit(_ENDLESS)

        begun = time.monotonic()
        if (seconds := self.took.get(item.nodeid)) is not None:
            signal.signal(signal.SIGALRM, end)
            signal.setitimer(signal.ITIMER_REAL, max(LEAST, TIMES * seconds))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._tell(f"TOOK {time.monotonic() - begun:.3f} {item.nodeid}")

    def _tell(self, line: str) -> None:
        with open(self.output, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"\n{line}\n")


def _test(folder: str, arguments: list[str], output: str, took: Took) -> None:
    """Runs pytest in a process of its own."""
    os.setsid()
    os.chdir(folder)
    with open(output, "a") as file:  # noqa: PTH123
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path[:0] = [f"{folder}/src"]
    os.environ["PYTHONPATH"] = f"{folder}/src"
    sys.dont_write_bytecode = True
    plain = ["--tb=no", "-rfE", "--assert=plain", "-p", "no:cacheprovider"]
    code = int(pytest.main([*plain, *arguments], plugins=[_Stopwatch(took, output)]))
    sys.stdout.flush()
    os._exit(code)
