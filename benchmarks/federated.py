"""What a round of federated averaging costs as the number of users grows: its time, and the memory of the process.

python -m benchmarks.federated [--users 1000 10000 100000] [--lot 100] [--examples 4] [--steps 24] [--batch 64] [--json]

Users are simulated: what one wrote is computed from its number when it is drawn. The model is an LSTM that tells the
next of 16 tokens of a vocabulary of 1,000, with 97,024 parameters. A run is `dpnlp.training.loop.train`, private and
with a clip norm that adapts, in a process of its own; its peak of memory is that of the process.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from dpnlp.accounting.accountant import Accountant
from dpnlp.accounting.subsampling import Schedule
from dpnlp.federated import Averaging, LocalSGD, Quantile
from dpnlp.guarantee import Adjacency, Unit
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.layers import LSTM, Embedding
from dpnlp.training import Clipping, Options, Plan, Secret, train

TOKENS, LENGTH, WIDTH = 1000, 16, 64
STRETCH = 4  # rounds that are timed together; a run counts as the median of them


class Writer(nnx.Module):
    """Tells the next token, by a table that it reads and writes with."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.table = Embedding(TOKENS, WIDTH, rngs=rngs)
        self.lstm = LSTM(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, ids: jax.Array) -> jax.Array:
        return self.table.attend(self.lstm(self.table(ids), jnp.ones(ids.shape)))


def next_token(model: Writer, ids: jax.Array) -> jax.Array:
    logs = jax.nn.log_softmax(model(ids[:, :-1]))
    return -jnp.take_along_axis(logs, ids[:, 1:, None], axis=-1)[..., 0].mean(axis=1)


class Simulated:
    """Texts by number, none of which is kept."""

    def __init__(self, examples: int) -> None:
        self.lengths = np.broadcast_to(np.uint8(LENGTH), examples)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: np.ndarray, length: int) -> np.ndarray:
        places = rows[:, None] * 2_654_435_761 + np.arange(LENGTH + 1) * 40_503 % 65_536
        return (places // 7 % TOKENS).astype(np.int32)


def measured(users: int, given: argparse.Namespace) -> dict[str, float]:
    """Seconds a round, users a second, and the peak of memory in MiB."""
    model, times = Writer(nnx.Rngs(0)), []
    plan = Plan(
        Schedule(users, given.lot, given.steps),
        Clipping(0.5),
        1.0,
        1e-6,
        Adjacency.ADD_REMOVE,
        Accountant.RDP,
        Unit.USER,
        contribution=Averaging(LocalSGD(0.5, 1, 2), quantile=Quantile()),
    )

    def now(model: nnx.Module) -> dict[str, float]:
        jax.block_until_ready(nnx.state(model))
        times.append(time.perf_counter())
        return {}

    train(
        model,
        next_token,
        Simulated(users * given.examples),
        plan,
        optax.sgd(1.0),
        Options(given.batch, (LENGTH,), evaluate_every=STRETCH, examples_per_owner=given.examples),
        owners=np.repeat(np.arange(users, dtype=np.int32), given.examples),
        secret=Secret.drawn(FixedSeed(0)),
        evaluate=now,
    )
    seconds = statistics.median(after - before for before, after in pairwise(times)) / STRETCH
    return {
        "users": users,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))),
        "seconds_per_round": seconds,
        "users_per_second": given.lot / seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--lot", type=int, default=100, help="users in a round, expected")
    parser.add_argument("--examples", type=int, default=4, help="of each user")
    parser.add_argument("--steps", type=int, default=24, help="rounds")
    parser.add_argument("--batch", type=int, default=64, help="examples on the device at once")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = [pool.apply(measured, (users, given)) for users in given.users]
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"rounds of {given.lot} users with {given.examples} texts each, {rows[0]['parameters']:,} parameters")
    print(f"{'users':>10}{'rounds/s':>10}{'users/s':>10}{'peak MiB':>10}")
    for row in rows:
        print(
            f"{row['users']:>10,}{1 / row['seconds_per_round']:>10.2f}{row['users_per_second']:>10.0f}"
            f"{row['peak_mib']:>10.0f}"
        )


if __name__ == "__main__":
    main()
