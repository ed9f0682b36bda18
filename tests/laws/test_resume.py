"""Law 7: a run that is killed at twenty random moments ends as if nothing had been, and pays once."""

import json
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

import pytest

from dpnlp.accounting.ledger import Ledger
from dpnlp.guarantee import NoiseSource, Unit


@pytest.fixture(scope="module")
def killed():
    """The run, as a module that a new process can import by its name."""
    here = str(Path(__file__).parent)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(here)
        patched.setenv("PYTHONPATH", here, prepend=os.pathsep)
        import killed

        yield killed
    del sys.modules["killed"]


class Life:
    """One start of the run, in a process of its own: a new interpreter, or one that has done its imports already."""

    def __init__(self, killed, home, last_words=None, method="forkserver"):
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["killed"])
        self.heard, told = context.Pipe(duplex=False)
        self.process = context.Process(target=killed.run, args=(home, told, last_words))
        self.process.start()
        told.close()

    def wait(self, event, times=1):
        for _ in range(times):
            while self.heard.recv() != event:
                pass

    def kill(self):
        self.process.kill()
        self.process.join()
        self.heard.close()
        assert self.process.exitcode == -9, "it was over before it could be killed"

    def end(self):
        self.wait("over")
        self.process.join()
        self.heard.close()
        assert self.process.exitcode == 0


def begin(home, killed):
    """A folder with data, and a budget that is enough for one run and not for two."""
    home.mkdir()
    (home / "corpus").write_text("what nobody may learn")
    plan = killed.PLAN
    epsilon = plan.guarantee(NoiseSource.FIXED_SEED).epsilon
    Ledger.beside(home / "corpus").set_budget(epsilon, plan.delta, Unit.EXAMPLE, plan.adjacency)
    return home


def diary(home):
    return [json.loads(line) for line in (home / "diary").read_text().splitlines()]


def moments(seed, save_time):
    """Where to kill: how the process starts, the event to wait for, its number in this life, and how much longer.

    The first two lives end in the first checkpoint and in the ledger. All lives together make at most 16 of the 20
    checkpoints, so that there is always something left to kill.
    """
    rng = random.Random(seed)
    early = [("forkserver", "saving", 1, rng.uniform(0, save_time)), ("forkserver", "charging", 1, 0.0)]
    later = [
        *(("spawn", None, 0, rng.uniform(0.1, 2)) for _ in range(2)),
        *(("forkserver", "begun", 1, rng.uniform(0, 1)) for _ in range(3)),
        *(("forkserver", "step", rng.randint(1, 3), rng.uniform(0, 0.01)) for _ in range(3)),
        *(("forkserver", "saving", 1, rng.uniform(0, save_time)) for _ in range(5)),
        *(("forkserver", "saving", 2, rng.uniform(0, save_time)) for _ in range(3)),
        *(("forkserver", "saved", 1, 0.0) for _ in range(2)),
    ]
    rng.shuffle(later)
    return early + later


def test_a_run_killed_twenty_times_is_the_run_that_was_never_killed(killed, tmp_path):
    whole, broken = begin(tmp_path / "whole", killed), begin(tmp_path / "broken", killed)
    life = Life(killed, whole)
    times = []
    while len(times) < 4:
        life.wait("saving")
        start = time.monotonic()
        life.wait("saved")
        times.append(time.monotonic() - start)
    life.end()

    ends, length = [], 0
    kills = moments(seed=7, save_time=min(times))
    for method, event, number, delay in kills:
        life = Life(killed, broken, (event, number), method)
        if event:
            life.wait(event, number)
        time.sleep(delay)
        life.kill()
        entries = diary(broken) if (broken / "diary").exists() else []
        ends += [entries[-1][0] if len(entries) > length else "imports"]
        length = len(entries)
    Life(killed, broken).end()

    assert len(ends) == 20
    assert ends.count("saving") >= 3, ends
    expected, found = diary(whole), diary(broken)
    assert sum(entry[0] == "begun" for entry in found) == 21 - ends.count("imports")

    # The same noise on the same sum of the same lot, however often a step was made again, and no noise on two steps.
    assert {tuple(e) for e in found if e[0] in ("lot", "step")} == {
        tuple(e) for e in expected if e[0] in ("lot", "step")
    }
    for kind in ("lot", "step"):
        made = {tuple(entry) for entry in found if entry[0] == kind}
        assert len(made) == len({entry[1] for entry in made}) == len({entry[2] for entry in made}) == killed.STEPS
    repeated = sum(entry[0] == "step" for entry in found) - killed.STEPS
    assert repeated > 0, "no kill cost a step, so that nothing was tested"

    # What was published was on the disk before, and never changed.
    figures = [entry[1] for entry in expected if entry[0] == "published"][-1]
    assert [step for step, _ in figures] == [*range(killed.EVERY, killed.STEPS, killed.EVERY), killed.STEPS]
    on_disk, published = -1, []
    for event, *details in found:
        if event in ("begun", "saving"):
            on_disk = -1
        if event in ("saved", "loaded"):
            (on_disk,) = details
        if event == "published":
            (history,) = details
            assert history == figures[: len(history)]
            assert history[-1][0] <= on_disk
            published.append(len(history))
    assert published == sorted(published)
    assert published[-1] == len(figures)

    # The same end, the same promise, and one price.
    outcomes = [json.loads((home / "outcome.json").read_text()) for home in (whole, broken)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["history"] == figures
    ledgers = [Ledger.beside(home / "corpus") for home in (whole, broken)]
    assert [len(ledger.read().releases) for ledger in ledgers] == [1, 1]
    assert ledgers[0].spent().epsilon == ledgers[1].spent().epsilon
    assert sorted(path.name for path in (broken / "checkpoints").iterdir()) == ["57", "60"]
