"""Shadow runs for the likelihood ratio attack: trained as a run was, with its settings, and thrown away again."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpnlp.audit.units import Units, numbered
from dpnlp.cli.attacked import Attacked
from dpnlp.cli.training import options_of
from dpnlp.data.views import Rows
from dpnlp.mechanisms.randomness import seeded


def shadow_models(target: Attacked, chosen: Units[Any], coins: NDArray[np.bool_], seed: int) -> Iterator[Any]:
    """A model for each line of coins [runs, units that are attacked].

    It learns from those for which its coins fell so, and from all members that are not attacked: on the average from as
    many as the run did. Where the run is private, so is each of these, with noise of its own. They have one shape, so
    that what is compiled serves them all. Nothing of them is written down, and no ledger is charged: what they learned
    is not released, and what an attack shows of it is not covered by any guarantee.
    """
    from dpnlp.training import Secret, train

    asked, job = target.asked, target.job
    pool, of = target.examples(job.task, *numbered(chosen.attacked + chosen.rest))
    data = job.entering(pool)
    for run, coin in enumerate(coins):
        rows = np.flatnonzero(np.append(coin, np.ones(len(chosen.rest), bool))[of])
        owners = None if job.owners is None else of[rows]
        plan = asked.privacy.plan(len(rows if owners is None else set(owners)), asked.learning, asked.contribution())
        number = int(np.random.SeedSequence((seed, run)).generate_state(1, np.uint64)[0])
        yield train(
            job.start.model,
            job.loss,
            Rows(data, rows),
            plan,
            asked.learning.build().build(plan.schedule.steps),
            options_of(asked, plan),
            trains=job.start.trains,
            owners=owners,
            secret=Secret.drawn(seeded(number)),
        ).model
