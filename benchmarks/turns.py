"""Variants of one computation, run in turns on one machine, and what was measured of each.

They take turns so that a machine that slows down slows all of them; a ratio is the median over the rounds of a
variant's time to that of the plain one in the same round.
"""

import contextlib
import dataclasses
import gc
import importlib.metadata
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import jax


@dataclasses.dataclass
class Step:
    """A variant that is ready to run; `run` returns when the device has finished."""

    run: Callable[[], Any]
    compile_seconds: float | None = None
    peak_bytes: Callable[[], int | None] = lambda: None  # asked after the last run
    clean: Callable[[], None] = lambda: None  # frees what a run left behind
    note: str = ""


Variants = dict[str, Callable[[], Step]]


@dataclasses.dataclass
class Row:
    """What was measured of one variant."""

    variant: str
    milliseconds: float | None = None
    ratio: float | None = None  # to the plain variant
    compile_seconds: float | None = None
    peak_bytes: int | None = None
    trouble: str | None = None  # why there are no figures
    note: str = ""


def measure(variants: Variants, plain: str, repeats: int) -> list[Row]:
    """Runs the variants in rounds, with `plain` as what the others are compared with.

    One that fails says why in its row and is left out of the rest.
    """
    rows = {name: Row(name) for name in variants}
    steps: dict[str, Step] = {}
    seconds: dict[str, list[float]] = {name: [] for name in variants}

    def attempt(name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            rows[name].trouble = _trouble(error)
            steps.pop(name, None)
        if rows[name].trouble:
            gc.collect()  # what the error held on to

    def prepare(name: str) -> None:
        step = variants[name]()
        rows[name].compile_seconds, rows[name].note = step.compile_seconds, step.note
        for _ in range(2):
            step.run()
            step.clean()
        steps[name] = step

    def timed(name: str) -> None:
        steps[name].run()  # so that none finds the caches as another variant left them
        steps[name].clean()
        start = time.perf_counter()
        steps[name].run()
        seconds[name].append(time.perf_counter() - start)
        steps[name].clean()

    for name in variants:
        attempt(name, lambda name=name: prepare(name))
    for _ in range(repeats):
        for name in list(steps):
            attempt(name, lambda name=name: timed(name))
    for name, step in steps.items():
        rows[name].milliseconds = 1e3 * statistics.median(seconds[name])
        rows[name].peak_bytes = step.peak_bytes()
        if plain in steps:
            pairs = zip(seconds[name], seconds[plain], strict=True)
            rows[name].ratio = statistics.median(own / other for own, other in pairs)
    return list(rows.values())


def _trouble(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower() or "OutOfMemory" in text:
        return "out of memory"
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    traceback.print_exception(error, file=sys.stderr)
    return text.splitlines()[0][:120]


def machine(dtype: str) -> dict[str, object]:
    """Where and with what it was measured."""
    device = jax.devices()[0]
    found: dict[str, object] = {"device": device.device_kind, "cores": os.cpu_count(), "dtype": dtype}
    for package in ("jax", "flax", "jax-privacy", "torch", "transformers", "opacus"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def table(rows: list[Row]) -> str:
    lines = [f"{'variant':28}{'ms':>12}{'ratio':>8}{'compile s':>11}{'peak MiB':>10}"]
    for row in rows:
        if row.trouble:
            lines.append(f"{row.variant:28}{row.trouble}")
            continue
        cells = ((row.ratio, 8, ".2f"), (row.compile_seconds, 11, ".1f"))
        text = "".join(f"{'-' if value is None else format(value, form):>{wide}}" for value, wide, form in cells)
        peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}"
        lines.append(f"{row.variant:28}{row.milliseconds:>12.1f}{text}{peak:>10}")
    return "\n".join(lines + [f"{row.variant}: {row.note}" for row in rows if row.note])


def show(title: str, asked: dict[str, Any], dtype: str, rows: list[Row], as_json: bool) -> None:
    """Prints what was measured, with the machine: a table, or what was asked for and all rows as JSON."""
    found = machine(dtype)
    if as_json:
        print(json.dumps({"machine": found, **asked, "rows": [dataclasses.asdict(row) for row in rows]}, indent=2))
        return
    print(f"{title}: {', '.join(f'{name} {value}' for name, value in found.items())}")
    print(table(rows))
