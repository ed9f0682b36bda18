"""A bench for trying changes of the code: a copy of the project, and the tests that should notice a change.

The libraries are loaded once, in a process that is forked for every change, so that a change costs what its first
failing test costs.
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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TypeVar

HERE = Path(__file__).parent
ROOT = HERE.parent
COPIED = ("src", "tests", "pyproject.toml")
LIBRARIES = ("numpy", "scipy.stats", "scipy.optimize", "dp_accounting", "hypothesis", "pytest", "jax", "optax")
LIBRARIES += ("flax.nnx", "orbax.checkpoint", "tokenizers", "safetensors.numpy")
Item = TypeVar("Item")
_FORKING = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Outcome:
    """What the tests say: pytest's exit code, None where they did not come to an end; and what failed, in order."""

    code: int | None
    failed: tuple[str, ...]
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

    def change(self, file: str, text: str, tests: Sequence[str], seconds: float) -> Outcome:
        """What the tests say while a file under src/dpnlp has another text."""
        path = self.folder / "src/dpnlp" / file
        source = path.read_text(encoding="utf-8")
        try:
            _write(path, text)
            return self.run(["-x", *tests], seconds)
        finally:
            _write(path, source)

    def run(self, tests: Sequence[str], seconds: float) -> Outcome:
        """What these tests say. Those that cannot be run end the program: they would prove nothing."""
        begun = time.monotonic()
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
            process = _FORKING.Process(target=_test, args=(str(self.folder), list(tests), output.name))
            process.start()
            process.join(seconds)
            code = process.exitcode
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.join()
            shown = output.read()
        failed = tuple(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", shown, re.MULTILINE))
        # A process that is killed by what it computes, as by too much memory, has noticed the change in its way.
        if code is not None and code > 0 and not failed:
            sys.exit(f"{' '.join(tests)}: the tests cannot be run.\n{shown}")
        return Outcome(code, failed or ((f"signal {-code}",) if code else ()), time.monotonic() - begun, shown)


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


def _test(folder: str, arguments: list[str], output: str) -> None:
    """Runs pytest in a process of its own."""
    os.setsid()
    os.chdir(folder)
    with open(output, "w") as file:  # noqa: PTH123
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path[:0] = [f"{folder}/src"]
    os.environ["PYTHONPATH"] = f"{folder}/src"
    sys.dont_write_bytecode = True
    import pytest

    code = int(pytest.main(["--tb=no", "-rfE", "--assert=plain", "-p", "no:cacheprovider", *arguments]))
    sys.stdout.flush()
    os._exit(code)
