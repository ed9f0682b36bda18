"""Runs that nobody ran: folders as training leaves them, with guarantees that are computed and scores that are not."""

import math
from dataclasses import asdict, replace
from functools import cache

from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling
from dpnlp.guarantee import NoiseSource
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import Origin, Privacy, new_id

RECORDS, LOT, STEPS, DELTA = 20_000, 500, 200, 1e-6
BLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"

SENTENCES = [
    {
        "source": "Die Patientin klagt seit drei Tagen über Kopfschmerzen und Schwindel.",
        "reference": "The patient has been complaining of headaches and dizziness for three days.",
        "before": "Patient the three over Kopfschmerzen.",
        "hypothesis": "The patient complains of headaches and dizziness since three days.",
    },
    {
        "source": "Bitte nehmen Sie die Tabletten nach dem Essen ein.",
        "reference": "Please take the tablets after the meal.",
        "before": "Please the the the.",
        "hypothesis": "Please take the tablets after eating.",
    },
    {
        "source": "Der nächste Termin ist am Donnerstag um neun Uhr.",
        "reference": "The next appointment is on Thursday at nine o'clock.",
        "before": "Donnerstag on nine.",
        "hypothesis": "The next appointment is on Thursday at nine o'clock.",
    },
]


@cache
def planned(epsilon, sampling=Sampling.POISSON):
    """A plan that stays within ε; RDP, because it is fast."""
    noise = 0.0 if math.isinf(epsilon) else None
    target = None if math.isinf(epsilon) else epsilon
    question = Question(RECORDS, DELTA, LOT, STEPS, None, noise, target, sampling=sampling, accountant=Accountant.RDP)
    return question.answer()


def fake(path, epsilon=4.0, sampling=Sampling.POISSON, seed=None, bleu=30.0, corpus="clinic", **changes):
    """A finished run. `changes` go into its config."""
    plan = planned(epsilon, sampling)
    promised, schedule = plan.guarantee, plan.schedule
    if seed is not None:
        promised = replace(promised, noise_source=NoiseSource.FIXED_SEED)
    config = {
        "name": path.name,
        "model": {"start": "google/mt5-small", "dropout": None},
        "data": {"corpus": corpus, "train": [], "source": "de", "target": "en"},
        "privacy": {"epsilon": epsilon, "delta": DELTA, "sampling": str(sampling), "seed": seed},
        "learning": {"lot_size": LOT, "steps": STEPS, "rate": 1e-3},
        **changes,
    }
    seeded = "" if seed is None else f" --privacy.seed {seed}"
    run = Run.create(path, config, f"dpnlp train --name {path.name}{seeded}")
    planning = {
        "schedule": asdict(schedule),
        "noise_multiplier": plan.noise_multiplier,
        "delta": DELTA,
        "adjacency": promised.adjacency,
        "accountant": promised.accountant.name,
        "unit": promised.unit,
        "target": epsilon,
    }
    origin = Origin(new_id(), f"dpnlp train {path.name}", schedule.event(plan.noise_multiplier), promised)
    run.write_privacy(Privacy((origin,), planning))
    run.write_metrics(evaluations(promised.epsilon, bleu))
    run.write_predictions("test", SENTENCES)
    return run


def evaluations(epsilon, bleu):
    """Scores that rise to `bleu`, on validation data along the way and on test data before and after."""
    steps = range(0, STEPS + 1, 40)
    rows = [row(step, epsilon, "validation", bleu * (0.1 + 0.85 * math.sqrt(step / STEPS))) for step in steps]
    return [*rows, row(0, epsilon, "test", 0.1 * bleu), row(STEPS, epsilon, "test", bleu)]


def row(step, epsilon, split, bleu):
    spent = epsilon if math.isinf(epsilon) else epsilon * math.sqrt(step / STEPS)
    return {"step": step, "epsilon": spent, "split": split, "bleu": bleu, "chrf": 20 + bleu, "bleu_signature": BLEU}
