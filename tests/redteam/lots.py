"""The sum of a lot as the engine makes it, before the noise is added: what an attacker wants one record to move."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.data.arrays import Arrays
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.training import Options, Secret
from dpnlp.training.clipping import Clipping
from dpnlp.training.contributions import GRADIENTS
from dpnlp.training.parameters import apart
from dpnlp.training.plan import Plan
from dpnlp.training.rounding import ROUNDING
from dpnlp.training.sampling import Lots, Owners, cut
from dpnlp.training.step import Examples, Step

ALLOWED = 1 + ROUNDING
"""What one record may move the sum by, in clip norms."""


class Engine:
    """The engine on some examples, of which lots of any records can be summed up."""

    def __init__(self, model, loss, examples, lengths=None, *, batch=16, clipping=None, of=None, most=1, **settings):
        self.data = Arrays(examples, lengths)
        self.secret = Secret.drawn(FixedSeed(3))
        self.owners = None if of is None else Owners(of, most, self.secret)
        records = len(self.data) if self.owners is None else len(self.owners)
        schedule = Schedule(records, records, 1, Sampling.POISSON)
        contribution = settings.get("contribution", GRADIENTS)
        self.plan = Plan(schedule, clipping or Clipping(1.0), 1.0, 1e-6, schedule.sampling.adjacencies[0])
        self.plan = self.plan if contribution is GRADIENTS else _contributing(self.plan, contribution)
        self.layout = Options(batch).layout(self.data, self.plan)
        parts = apart(model, settings.get("trains", nnx.Param))
        self.parameters = parts.parameters
        self.step = Step(loss, parts.frame, parts.rest, self.plan, optax.sgd(0.1))
        self.places = Lots(schedule, self.secret).places(0)

    def sum(self, lot):
        """The sum over a lot, in double precision."""
        sums, key = self.step.empty(self.parameters), self.secret.key("dropout")
        carried = self.plan.contribution.start()
        for shape, rows, weights in cut(np.asarray(lot), self.layout, self.data.lengths, self.places, self.owners):
            batch = Examples(self.data.batch(rows, shape.length), jnp.asarray(rows, jnp.int32), jnp.asarray(weights))
            sums = self.step.add(sums, self.parameters, key, batch, shape.examples, carried)
        both = ((sums.gradients[name], sums.lost[name]) for name in sorted(sums.gradients))
        return np.concatenate([(np.float64(high) + np.float64(low)).ravel() for high, low in both])

    def moved(self, lot, record):
        """By how much one record more moves the sum, in clip norms."""
        lot = np.setdiff1d(lot, [record])
        difference = self.sum(np.union1d(lot, [record])) - self.sum(lot)
        return float(np.linalg.norm(difference)) / self.plan.clipping.norm


def _contributing(plan, contribution):
    from dataclasses import replace

    return replace(plan, contribution=contribution)
