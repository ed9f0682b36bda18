"""Ctrl-C, SIGTERM and SIGHUP: the first is heard and the way to go on is printed, a second ends the process at once."""

import signal
import subprocess
import sys

import pytest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAIN = """
import signal, sys, time
from dpnlp.cli.interruption import interruptible, stoppable
from dpnlp.cli.main import Command, main

class Verb:
    @classmethod
    def chosen(cls, words):
        return cls

    def run(self):
        {body}

import dpnlp.cli.main as module
module.parse = lambda verb, words, name: verb()
module.import_verb = lambda command: Verb
sys.exit(main(["work"], {{("work",): Command("nowhere:Verb", "Works")}}))
"""
WAITS = "print('here', flush=True); time.sleep(30)"
STEPS = """
        with interruptible() as asked:
            print("here", flush=True)
            while not asked():
                time.sleep(0.01)
            print("kept", flush=True)
            {after}
"""


def begun(body, *before):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*before, sys.executable, "-c", MAIN.format(body=body)], text=True, **pipes)
    assert process.stdout.readline() == "here\n"
    return process


@pytest.mark.parametrize("number", SIGNALS)
def test_each_of_them_is_one_sentence_and_no_traceback(number):
    process = begun(WAITS)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "dpnlp: interrupted.\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_work_ends_after_the_step_at_hand_also_if_nobody_asks_again(number):
    process = begun(STEPS.format(after="pass"))
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "kept\n")
    assert "finishing the step at hand" in err
    assert err.endswith("dpnlp: interrupted.\n")


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_one_ends_the_process_at_once(first, second):
    process = begun(STEPS.format(after="time.sleep(30)"))
    process.send_signal(first)
    assert process.stdout.readline() == "kept\n"
    process.send_signal(second)
    process.communicate(timeout=20)
    assert process.returncode == -second


def test_what_a_process_was_started_to_ignore_it_ignores():
    """As `nohup` has it."""
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    process = begun("print('here', flush=True); time.sleep(1); print('over')", *ignoring)
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "over\n")
