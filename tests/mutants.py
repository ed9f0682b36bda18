"""Planted defects: each is patched into a copy of the project, and the tests that should notice it are run.

    make mutants            all of them, a few minutes
    make mutants ONLY=rdp   those whose description or file contains the word

A defect that no test notices is a hole in the tests. The list holds what went wrong in earlier systems, and what would
be easy to get wrong here. A defect with which the tests do not come to an end counts as caught, since nobody could
overlook it, and the table says so. The test that finds a defect fastest stands first in its list.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "pyproject.toml")
CACHE = ROOT / ".cache" / "jax"  # what the tests have compiled; most of it is the same with a defect
SECONDS = 300
"""How long the tests of one defect may take."""


@dataclass(frozen=True)
class Defect:
    """One edit to a file under src/dpnlp, and the tests (paths under tests/) that must fail with it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


PLD, RDP = ("accounting/test_pld.py",), ("accounting/test_rdp.py",)
TRAIN = ("cli/test_train.py",)
SUBSAMPLING, CALIBRATION = ("accounting/test_subsampling.py",), ("accounting/test_calibration.py",)
LEDGER, COMPOSITION = ("accounting/test_ledger.py",), ("accounting/test_composition.py",)
LOSSES, CLIPPING = ("accounting/test_losses.py",), ("training/test_clipping.py",)
SAMPLING, NOISE = ("training/test_sampling.py",), ("training/test_noise.py",)
PLAN, OPTIMIZERS = ("training/test_plan.py",), ("training/test_optimizers.py",)
INDEPENDENCE, SHARDING = ("training/test_independence.py",), ("training/test_sharding.py",)
RESUME = (
    "training/test_checkpoints.py::test_a_run_goes_on_with_its_own_secret",
    "training/test_checkpoints.py::test_a_run_that_crashes_again_and_again_goes_on_and_pays_once",
)
LOAD = "done, state, record = checkpoints.load(state, record.plan)"
SAVE = (
    "            if checkpoints and (due or leaves or done == last):\n"
    "                checkpoints.save(done, state, record)\n"
)
LEAVES = (
    "            if leaves:\n                if checkpoints:\n                    checkpoints.close()\n"
    "                raise KeyboardInterrupt\n"
)
ENDS = "            if ends():\n                break\n"
RETELL = ("rewriting/test_retell.py",)
LAYERS, PARAMETERS = ("models/test_layers.py",), ("training/test_parameters.py",)
CROSS_ENTROPY, LORA = ("models/test_cross_entropy.py",), ("models/test_lora.py",)
READING = "cli/test_reading.py::test_"
ADEPT, AUTOENCODER = "rewriting/test_adept.py::test_", ("models/test_autoencoder.py",)
FREEZING, T5 = ("models/test_freezing.py",), ("models/test_t5.py",)


def in_clipping(name: str) -> tuple[str, ...]:
    """This test of clipping, then one step."""
    return (f"training/test_clipping.py::test_{name}", "training/test_step.py")


def in_step(*names: str) -> tuple[str, ...]:
    """These tests of one step, then the laws as a whole."""
    return (*(f"training/test_step.py::test_{name}" for name in names), "laws/test_training_laws.py")


def in_loop(*names: str) -> tuple[str, ...]:
    """These tests of whole runs, then the laws as a whole."""
    return (*(f"training/test_loop.py::test_{name}" for name in names), "laws/test_training_laws.py")


DEFECTS = (
    Defect(
        "shuffled lots accounted as Poisson",
        "accounting/subsampling.py",
        "return Repeated(noise, self.epochs)",
        "return Repeated(PoissonSampled(self.q, noise), self.steps)",
        SUBSAMPLING,
    ),
    Defect(
        "N rounded up to a multiple of the lot size",
        "accounting/subsampling.py",
        "return self.lot_size / self.records",
        "return 1 / self.lots_per_epoch",
        SUBSAMPLING,
    ),
    Defect(
        "the last, partial epoch forgotten",
        "accounting/subsampling.py",
        "return -(-self.steps // self.lots_per_epoch)",
        "return self.steps // self.lots_per_epoch",
        SUBSAMPLING,
    ),
    Defect(
        "a sampler borrows an event that is not proved for it",
        "accounting/subsampling.py",
        "if adjacency not in self.sampling.adjacencies:",
        "if False:",
        SUBSAMPLING,
    ),
    Defect(
        "a replaced record moves a Gaussian answer only once",
        "accounting/pld.py",
        "precision += times * (apart / z) ** 2",
        "precision += times * (1 / z) ** 2",
        (*RDP, *LEDGER),
    ),
    Defect(
        "a replaced record moves a Laplace answer only once",
        "accounting/pld.py",
        "return profiles.laplace(apart / z)",
        "return profiles.laplace(1 / z)",
        PLD,
    ),
    Defect(
        "a fixed-size lot treated as if a record were added",
        "accounting/pld.py",
        "profiles.gaussian(apart / z, deviations), lot_size / records)",
        "profiles.gaussian(1 / z, deviations), lot_size / records)",
        PLD,
    ),
    Defect(
        "only the added record is looked at, not the removed one",
        "accounting/pld.py",
        "else [forward, backward]",
        "else [backward]",
        PLD,
    ),
    Defect(
        "δ of repeated releases counted once",
        "accounting/pld.py",
        "log_kept += times * math.log1p(-failure)",
        "log_kept += math.log1p(-failure)",
        (*PLD, *LEDGER),
    ),
    Defect(
        "the count of randomized responses ignored",
        "accounting/pld.py",
        "            case _:\n                rest[atom] += times",
        "            case _:\n                rest[atom] += 1 if isinstance(atom, RandomizedResponse) else times",
        PLD,
    ),
    Defect(
        "truncation of lots ignored",
        "accounting/profiles.py",
        "cut = float(binom.sf(largest_lot - 1, records - 1, q))",
        "cut = 0.0",
        PLD,
    ),
    Defect(
        "infinite losses dropped",
        "accounting/losses.py",
        "infinite = 1 - (1 - infinite) * math.exp(times * math.log1p(-part.infinite))",
        "infinite = 0.0",
        LOSSES,
    ),
    Defect(
        "masses on the grid a little too small",
        "accounting/losses.py",
        "masses[:-1] -= falls[1:] / math.expm1(step)",
        "masses[:-1] -= 1.0001 * falls[1:] / math.expm1(step)",
        PLD,
    ),
    Defect(
        "a plain FFT, whose rounding a million steps magnify",
        "accounting/losses.py",
        "aim = min(-math.log(delta), 0.9 * exponent(high))",
        "aim = -1.0",
        PLD,
    ),
    Defect(
        "rdp: a replaced record moves the answer only once",
        "accounting/rdp.py",
        "dp_accounting.GaussianDpEvent(z / apart), orders), 0.0",
        "dp_accounting.GaussianDpEvent(z), orders), 0.0",
        RDP,
    ),
    Defect(
        "rdp: steps not counted",
        "accounting/rdp.py",
        "total = total + times * part",
        "total = total + part",
        RDP,
    ),
    Defect(
        "moments: a conversion that is too generous",
        "accounting/rdp.py",
        "divergence + math.log(1 / remaining)",
        "divergence + math.log(0.5 / remaining)",
        RDP,
    ),
    Defect(
        "calibrated noise not checked against the accountant",
        "accounting/calibration.py",
        "    z = round_up(_solve(cost, target, guess, falling=True), DIGITS)\n    while cost(z) > target:",
        "    z = 0.9999 * _solve(cost, target, guess, falling=True)\n    while False:",
        CALIBRATION,
    ),
    Defect(
        "a stated ε rounded to the nearest instead of up",
        "accounting/accountant.py",
        "stated = round_up(spent, DIGITS)",
        "stated = float(f'{spent:.3g}')",
        (*SUBSAMPLING, *CALIBRATION),
    ),
    Defect(
        "a plan states more than its target",
        "accounting/accountant.py",
        "epsilon=min(stated, target) if target is not None and spent <= target else stated,",
        "epsilon=stated + 1e-4,",
        CALIBRATION,
    ),
    Defect(
        "epochs without their last, partial lot",
        "accounting/planning.py",
        "math.ceil((self.epochs or 1) * lots_per_epoch)",
        "math.ceil((self.epochs or 1) * self.records / lot_size)",
        CALIBRATION,
    ),
    Defect(
        "parallel composition under replace as if one part were touched",
        "accounting/composition.py",
        "touched = 2 if adjacency is Adjacency.REPLACE else 1",
        "touched = 1",
        COMPOSITION,
    ),
    Defect(
        "δ of a group grows linearly",
        "accounting/composition.py",
        "min(1.0, delta * math.expm1(k * epsilon) / math.expm1(epsilon))",
        "min(1.0, k * delta)",
        COMPOSITION,
    ),
    Defect(
        "ledger: a bare (ε, δ) not doubled under replace",
        "accounting/releases.py",
        "case ApproximateDP(epsilon, delta):",
        "case ApproximateDP(epsilon, delta) if False:",
        LEDGER,
    ),
    Defect(
        "ledger: an example's guarantee taken for a user's",
        "accounting/releases.py",
        "if not release.unit.protects(unit):",
        "if False:",
        LEDGER,
    ),
    Defect(
        "ledger: a user's guarantee taken for one of an example that goes",
        "accounting/releases.py",
        "compared = Adjacency.REPLACE if parts else adjacency",
        "compared = adjacency",
        LEDGER,
    ),
    Defect(
        "ledger: the budget not looked at",
        "accounting/ledger.py",
        "if not after.epsilon <= budget.epsilon:",
        "if False:",
        LEDGER,
    ),
    Defect(
        "ledger: no lock while the budget is checked",
        "accounting/ledger.py",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "fcntl.flock(file, fcntl.LOCK_SH)",
        LEDGER,
    ),
    Defect(
        "Laplace noise of half the scale",
        "mechanisms/laplace.py",
        "discrete_laplace(self.source, scale, n)",
        "discrete_laplace(self.source, scale // 2, n)",
        ("mechanisms/test_laplace.py",),
    ),
    Defect(
        "Gaussian noise of half the scale",
        "mechanisms/gaussian.py",
        "math.ceil(math.sqrt(sigma * sigma + 16))",
        "math.ceil(sigma / 2)",
        ("mechanisms/test_gaussian.py",),
    ),
    Defect(
        "ADePT: ℓ2 clipping with an ℓ1 sensitivity of 2C",
        "mechanisms/sensitivity.py",
        "cls(bound * math.sqrt(dimension), bound)",
        "cls(bound, bound)",
        ("mechanisms/test_sensitivity.py",),
    ),
    Defect(
        "the classical Gaussian at ε ≥ 1",
        "mechanisms/gaussian.py",
        "if epsilon >= 1:",
        "if False:",
        ("mechanisms/test_refusals.py", "mechanisms/test_gaussian.py"),
    ),
    Defect(
        "noise from a seeded generator that the statement calls entropy",
        "mechanisms/randomness.py",
        "kind = NoiseSource.FIXED_SEED",
        "kind = NoiseSource.OS_ENTROPY",
        ("mechanisms/test_laplace.py",),
    ),
    Defect(
        "clipping: the rounding of bfloat16 not counted",
        "training/clipping.py",
        "return self.rounding**2 * self.positions",
        "return 0 * self.positions",
        ("training/test_step.py::test_law_5_no_rounding_of_bfloat16_lifts_a_record_above_the_clip_norm", *CLIPPING),
    ),
    Defect(
        "clipping: clip factors rounded to the nearest bfloat16 instead of down",
        "training/clipping.py",
        "jnp.where(near > factors, jnp.nextafter(near, jnp.zeros_like(near)), near)",
        "near",
        ("training/test_step.py::test_law_5_no_rounding_of_bfloat16_lifts_a_record_above_the_clip_norm", *CLIPPING),
    ),
    Defect(
        "clipping: no cross term between embedding and tied output layer",
        "training/clipping.py",
        "yield 2 * gram(first.left",
        "yield 0 * gram(first.left",
        CLIPPING,
    ),
    Defect(
        "clipping: the rounding of bfloat16 not counted in sums over pairs of positions",
        "training/clipping.py",
        "slack = slack + u**2 * positions * spread",
        "slack = slack + 0 * spread",
        ("training/test_step.py::test_law_5_no_rounding_of_bfloat16_lifts_a_record_above_the_clip_norm", *CLIPPING),
    ),
    Defect(
        "clipping: of the uses of a weight the widest type decides how far scaling rounds",
        "training/clipping.py",
        "return max(_half_unit(side.dtype)",
        "return min(_half_unit(side.dtype)",
        ("training/test_step.py",),
    ),
    Defect(
        "clipping: a kernel that leaves out the last columns",
        "training/contractions.py",
        "pl.cdiv(sides[-1].shape[2], BLOCKS * COLUMNS)",
        "max(1, sides[-1].shape[2] // (BLOCKS * COLUMNS))",
        ("training/test_contractions.py",),
    ),
    Defect(
        "clipping: a kernel for the first few weights only",
        "training/contractions.py",
        "for start in range(0, len(lefts), WEIGHTS):",
        "for start in [0]:",
        ("training/test_contractions.py",),
    ),
    Defect(
        "clipping: a kernel that reads beyond the last columns",
        "training/contractions.py",
        "whole = positions == T and width % (blocks * COLUMNS) == 0",
        "whole = positions == T",
        ("training/test_contractions.py",),
    ),
    Defect(
        "clipping: only the first use of a shared weight counts for its norm",
        "training/clipping.py",
        "left, right = (jnp.concatenate([use[side] for use in self.outer], axis=1) for side in (0, 1))",
        "left, right = self.outer[0]",
        CLIPPING,
    ),
    Defect(
        "clipping: the examples of a record not weighted",
        "training/clipping.py",
        "return jnp.sum(weights * losses), (",
        "return jnp.sum(losses), (",
        CLIPPING,
    ),
    Defect(
        "clipping: a gradient that is no number spoils the sum",
        "training/clipping.py",
        "counted = sound & jnp.any(",
        "counted = jnp.any(",
        in_clipping("a_gradient_that_is_no_number_counts_as_zero"),
    ),
    Defect(
        "clipping: a weight that no layer notes is trained unclipped",
        "training/clipping.py",
        "jnp.where(counted, factor, 0.0)",
        "jnp.where(counted, 1.0 if name in stray else factor, 0.0)",
        in_clipping("a_parameter_that_no_layer_notes_or_not_always_is_clipped_by_vmap"),
    ),
    Defect(
        "clipping: a use behind the layers' backs overlooked",
        "training/clipping.py",
        "if use.name not in behind | mixed]",
        "if use.name not in mixed]",
        in_clipping("a_parameter_that_no_layer_notes_or_not_always_is_clipped_by_vmap"),
    ),
    Defect(
        "clipping: the examples of one record clipped one by one",
        "training/clipping.py",
        "records = weights.shape[0] // examples_per_record",
        "records = weights.shape[0]",
        CLIPPING,
    ),
    Defect(
        "clipping: each tensor by itself taken for the whole gradient",
        "training/clipping.py",
        "return dict.fromkeys(books, jnp.minimum(1.0, self.norm / whole.bound))",
        "return {name: jnp.minimum(1.0, self.norm / _size([book]).bound) for name, book in books.items()}",
        in_clipping("law_5_no_record_contributes_more_than_the_clip_norm"),
    ),
    Defect(
        "clipping: left out",
        "training/clipping.py",
        "return dict.fromkeys(books, jnp.minimum(1.0, self.norm / whole.bound))",
        "return dict.fromkeys(books, jnp.ones_like(whole.bound))",
        in_clipping("law_5_no_record_contributes_more_than_the_clip_norm"),
    ),
    Defect(
        "book-keeping: taps not added",
        "bookkeeping.py",
        "return output if self.taps is None else output + self.taps[index]",
        "return output",
        CLIPPING,
    ),
    Defect(
        "step: noise for each physical batch",
        "training/step.py",
        "            total: Sums = jax.tree.map(jnp.add, Sums(gradients, seen), more)\n",
        "            noise = self.plan.noise.draw((), key, gradients, self.plan.stddev)[0]\n"
        "            more = Sums(jax.tree.map(jnp.add, more.gradients, noise), more.seen)\n"
        "            total: Sums = jax.tree.map(jnp.add, Sums(gradients, seen), more)\n",
        in_step("law_3_noise_is_added_once_per_lot_however_many_batches_and_devices"),
    ),
    Defect(
        "step: the sum divided by the drawn lot size",
        "training/step.py",
        "return self._finish(state, sums.gradients, key)",
        "drawn = jnp.maximum(sums.seen.records, 1) / self.plan.schedule.lot_size\n"
        "        return self._finish(state, jax.tree.map(lambda total: total / drawn, sums.gradients), "
        "key)",
        in_step("law_2_the_sum_is_divided_by_the_expected_lot_size_whatever_was_drawn"),
    ),
    Defect(
        "step: noise on matrices only",
        "training/step.py",
        "gradients = jax.tree.map(jnp.add, gradients, noise)",
        "gradients = jax.tree.map(lambda g, n: g + n if g.ndim > 1 else g, gradients, noise)",
        in_step("law_3_every_trained_parameter_gets_noise_of_the_planned_size_and_of_its_own"),
    ),
    Defect(
        "step: noise taken off the sum of an empty lot",
        "training/step.py",
        "                gradients = jax.tree.map(jnp.add, gradients, noise)\n",
        "                some = sum(jnp.abs(g).sum() for g in gradients.values()) > 0\n"
        "                gradients = jax.tree.map(lambda g, n: g + some * n, gradients, noise)\n",
        in_step("law_3_every_trained_parameter_gets_noise_of_the_planned_size_and_of_its_own"),
    ),
    Defect(
        "step: dropout by the place in the batch, not by the example",
        "training/step.py",
        "in_axes=(None, 0))(key, examples.rows)",
        "in_axes=(None, 0))(key, jnp.arange(examples.rows.shape[0]))",
        in_step("law_4_accumulation_order_padding_and_batchmates_change_nothing"),
    ),
    Defect(
        "step: only the last physical batch of a lot counts",
        "training/step.py",
        "total: Sums = jax.tree.map(jnp.add, Sums(gradients, seen), more)",
        "total: Sums = more",
        in_step("a_step_is_algorithm_1_of_abadi_et_al"),
    ),
    Defect(
        "step: the examples of an owner clipped one by one",
        "training/step.py",
        "examples.weights, per_record)",
        "examples.weights, 1)",
        in_step("an_owner_is_clipped_as_one_record_of_the_mean_of_its_losses"),
    ),
    Defect(
        "step: no clipping where there is no noise",
        "training/step.py",
        "if not self.plan.clips:",
        "if not self.plan.stddev:",
        in_step("a_step_is_algorithm_1_of_abadi_et_al"),
    ),
    Defect(
        "step: the average leans the wrong way",
        "training/step.py",
        "state.average, 1 - self.decay)",
        "state.average, self.decay)",
        in_step("the_average_is_what_it_is_defined_as"),
    ),
    Defect(
        "step: banded noise begun anew at every step",
        "training/step.py",
        "State(parameters, optimizer, noise_state, average)",
        "State(parameters, optimizer, state.noise, average)",
        in_step("banded_noise_is_carried_from_step_to_step"),
    ),
    Defect(
        "loop: the noise of every step from one key",
        "training/loop.py",
        'record.secret.key("noise", done))',
        'record.secret.key("noise"))',
        in_loop("noise_is_another_at_every_step"),
    ),
    Defect(
        "loop: the dropout of every step from one key",
        "training/loop.py",
        'record.secret.key("dropout", done)\n            bar',
        'record.secret.key("dropout")\n            bar',
        in_loop("other_entries_are_dropped_at_every_step"),
    ),
    Defect(
        "loop: empty lots skipped",
        "training/loop.py",
        "        yield None\n",
        "        if lots.draw(step).size:\n            yield None\n",
        in_loop("law_3_an_empty_lot_gets_noise_and_counts_as_a_step"),
    ),
    Defect(
        "loop: diagnostics not named",
        "training/loop.py",
        "diagnostics = [Exposure.DIAGNOSTICS] if diagnose else []",
        "diagnostics: list[Exposure] = []",
        in_loop("diagnostics_show_the_lots_and_the_guarantee_names_them"),
    ),
    Defect(
        "loop: the average neither evaluated nor returned",
        "training/loop.py",
        "jax.tree.map(jnp.copy, state.average or state.parameters)",
        "jax.tree.map(jnp.copy, state.parameters)",
        in_loop("evaluation_is_made_when_due_and_sees_the_average"),
    ),
    Defect(
        "loop: data of another size than was planned for",
        "training/loop.py",
        "if plan.schedule.records != found:",
        "if False:",
        in_loop("what_cannot_be_run_is_refused"),
    ),
    Defect(
        "loop: nobody looks whether the loss mixes examples",
        "training/loop.py",
        "    _refuse_mixing(loss, parts, data, options.layout(data))\n",
        "",
        in_loop("what_cannot_be_run_is_refused"),
    ),
    Defect(
        "loop: a fixed seed called entropy",
        "training/loop.py",
        "guarantee = plan.guarantee(record.secret.kind,",
        "guarantee = plan.guarantee(Secret.drawn().kind,",
        in_loop("law_6_only_a_fixed_seed_gives_the_same_run_again"),
    ),
    Defect(
        "loop: every run has the same secret",
        "training/loop.py",
        "secret or Secret.drawn()",
        "secret or Secret(bytes(32), Secret.drawn().kind)",
        in_loop("law_6_only_a_fixed_seed_gives_the_same_run_again"),
    ),
    Defect(
        "loop: a run that stops early is said to cost less",
        "training/loop.py",
        "guarantee = plan.guarantee(record.secret.kind,",
        'plan = type(plan)(**{**vars(plan), "schedule": type(plan.schedule)(**{**vars(plan.schedule), '
        '"steps": done})})\n'
        "    guarantee = plan.guarantee(record.secret.kind,",
        in_loop("stopping_early_is_decided_by_evaluations_and_the_guarantee_is_still_the_whole_plans"),
    ),
    Defect(
        "loop: the last step not evaluated",
        "training/loop.py",
        "if evaluate and done and (done == last or ",
        "if evaluate and done and (",
        in_loop("evaluation_is_made_when_due_and_sees_the_average"),
    ),
    Defect(
        "loop: a step evaluated before it is on the disk",
        "training/loop.py",
        SAVE + LEAVES + ENDS,
        ENDS + SAVE + LEAVES,
        in_loop("what_is_evaluated_and_published_is_on_the_disk_before"),
    ),
    Defect(
        "loop: a run written over another",
        "training/loop.py",
        "        if not resume:\n",
        "        if False:\n",
        in_loop("a_folder_that_has_a_run_is_refused"),
    ),
    Defect(
        "loop: a resumed run starts from the untrained model",
        "training/loop.py",
        "done, state, record = checkpoints.load(state, record.plan)",
        "done, _, record = checkpoints.load(state, record.plan)",
        RESUME,
    ),
    Defect(
        "loop: a resumed run has another secret",
        "training/loop.py",
        LOAD,
        LOAD + "\n        record = _fresh(plan, secret, bool(diagnose), bool(charge))",
        RESUME,
    ),
    Defect(
        "a progress bar in a pipe",
        "training/progress.py",
        "disable=not console.is_terminal",
        "disable=False",
        in_loop("the_progress_bar_is_quiet_where_nobody_watches"),
    ),
    Defect(
        "plan: ε of half the steps",
        "training/plan.py",
        "return accountant.guarantee(\n            self.schedule, ",
        "return accountant.guarantee(\n            replace(self.schedule, steps=-(-self.schedule.steps // 2)), ",
        PLAN,
    ),
    Defect(
        "plan: the ledger is told of another sampler",
        "training/plan.py",
        "return self.schedule.event(self.noise_multiplier)",
        "return type(self.schedule)(*list(vars(self.schedule).values())[:3]).event(self.noise_multiplier)",
        PLAN,
    ),
    Defect(
        "plan: noise that forgets the clip norm",
        "training/plan.py",
        "return self.noise_multiplier * self.clipping.norm if",
        "return self.noise_multiplier * min(1.0, self.clipping.norm, 0.1) if",
        (*PLAN, *in_step()),
    ),
    Defect(
        "plan: less ε shown than was spent",
        "training/plan.py",
        "-(-steps // stride) * stride",
        "steps // stride * stride",
        PLAN,
    ),
    Defect(
        "plan: one step more than the budget allows",
        "training/plan.py",
        "schedule=replace(self.schedule, steps=most)",
        "schedule=replace(self.schedule, steps=most + 1)",
        PLAN,
    ),
    Defect(
        "plan: the unit of the question forgotten",
        "training/plan.py",
        "            question.unit,\n",
        "",
        PLAN,
    ),
    Defect(
        "plan: noise of independent steps where the event is that of bands",
        "training/plan.py",
        "return Independent() if bands == 1 else",
        "return Independent() if bands else",
        PLAN,
    ),
    Defect(
        "a loss that mixes examples let through",
        "training/independence.py",
        "    if differ(together, alone):",
        "    if False:",
        INDEPENDENCE,
    ),
    Defect(
        "batch statistics let through",
        "training/independence.py",
        "            if isinstance(node, kind):",
        "            if False:",
        INDEPENDENCE,
    ),
    Defect(
        "a loss without a value for each example let through",
        "training/independence.py",
        "if shape != (size,):",
        "if False:",
        INDEPENDENCE,
    ),
    Defect(
        "warm-up that goes down",
        "training/optimizers.py",
        "optax.linear_schedule(rate / warm, rate, warm - 1)",
        "optax.linear_schedule(rate, rate / warm, warm - 1)",
        OPTIMIZERS,
    ),
    Defect(
        "a cosine that is not over when the run is",
        "training/optimizers.py",
        "optax.cosine_decay_schedule(rate, rest)",
        "optax.cosine_decay_schedule(rate, steps)",
        OPTIMIZERS,
    ),
    Defect(
        "weight decay inside the moments",
        "training/optimizers.py",
        "optax.chain(direction, decayed,",
        "optax.chain(decayed, direction,",
        OPTIMIZERS,
    ),
    Defect(
        "sharding: every device gets the whole batch",
        "training/sharding.py",
        "sharding = self._spread(AXIS)",
        "sharding = self._spread()",
        SHARDING,
    ),
    Defect(
        "sharding: parameters on every device although they are to be spread",
        "training/sharding.py",
        "if not self.shard_parameters or not even:",
        "if True:",
        SHARDING,
    ),
    Defect(
        "training what is to be frozen",
        "training/parameters.py",
        "nnx.split(model, trains, ...)",
        "nnx.split(model, nnx.Param, ...)",
        PARAMETERS,
    ),
    Defect(
        "layers: an LSTM reads padding",
        "models/layers.py",
        "following = State(jnp.where(real, h_next, h), jnp.where(real, c_next, c))",
        "following = State(h_next, c_next)",
        LAYERS,
    ),
    Defect(
        "layers: an LSTM never reads backwards",
        "models/layers.py",
        ", reverse=self.reverse)\n",
        ")\n",
        LAYERS,
    ),
    Defect(
        "layers: dropout drawn once for the batch",
        "models/layers.py",
        "x.shape[1:]))(keys)",
        "x.shape[1:]))(keys[:1])",
        LAYERS,
    ),
    Defect(
        "layers: dropout that does not scale up",
        "models/layers.py",
        "jnp.where(kept, x / (1 - self.rate), 0)",
        "jnp.where(kept, x, 0)",
        LAYERS,
    ),
    Defect(
        "lora: adapters that change the model before they are trained",
        "models/lora.py",
        "nnx.LoRAParam(jnp.zeros((rank, outputs)))",
        "nnx.LoRAParam(jnp.ones((rank, outputs)))",
        LORA,
    ),
    Defect(
        "lora: merged without its scale",
        "models/lora.py",
        "self.base.kernel[...] + self.scale * change",
        "self.base.kernel[...] + change",
        LORA,
    ),
    Defect(
        "freezing: what is named frozen is trained",
        "models/freezing.py",
        ' - matching("frozen", frozen, names)',
        "",
        FREEZING,
    ),
    Defect(
        "freezing: every parameter is trained, whatever was chosen",
        "models/freezing.py",
        "dotted(path) in chosen",
        "True",
        FREEZING,
    ),
    Defect(
        "cross entropy: the end of the vocabulary forgotten",
        "models/cross_entropy.py",
        "carried = look(whole * self.chunk, rest, start) if rest else start",
        "carried = start",
        CROSS_ENTROPY,
    ),
    Defect(
        "cross entropy: a mean over the tokens of the batch",
        "models/cross_entropy.py",
        "jnp.maximum(jnp.sum(real, axis=1), 1)",
        "jnp.maximum(jnp.sum(real), 1)",
        CROSS_ENTROPY,
    ),
    Defect(
        "cross entropy: padding counted",
        "models/cross_entropy.py",
        "jnp.where(real, token_losses(model, states, targets, smoothing, chunk), 0)",
        "token_losses(model, states, targets, smoothing, chunk)",
        CROSS_ENTROPY,
    ),
    Defect(
        "cross entropy: a gradient that is no number in a chunk",
        "models/cross_entropy.py",
        "bookkeeping.finite(of_logits)",
        "of_logits",
        CROSS_ENTROPY,
    ),
    Defect(
        "t5: one bucket for what comes later and for the token itself",
        "models/t5.py",
        "jnp.where(away > 0, count, 0)",
        "jnp.where(away >= 0, count, 0)",
        T5,
    ),
    Defect(
        "attention: padding is seen",
        "models/attention.py",
        "mask[:, None, None, :] > 0",
        "mask[:, None, None, :] >= 0",
        ("laws/test_model_laws.py",),
    ),
    Defect(
        "dropout: the same entries at every use",
        "dropout.py",
        "fold(keys, use) for use",
        "fold(keys, 0) for use",
        LAYERS,
    ),
    Defect(
        "dropout: goes on after training",
        "dropout.py",
        "        _OPEN.reset(token)",
        "        pass",
        LAYERS,
    ),
    Defect(
        "noise: half of it",
        "training/noise.py",
        "together = stddev * jax.vmap(",
        "together = 0.5 * stddev * jax.vmap(",
        NOISE,
    ),
    Defect(
        "noise: the same on every leaf",
        "training/noise.py",
        "(key, jnp.arange(len(leaves)))",
        "(key, jnp.zeros(len(leaves), int))",
        NOISE,
    ),
    Defect(
        "noise: the box of jax.random.normal",
        "training/noise.py",
        "return jnp.stack(normal_pairs(words), axis=-1).reshape(*front, -1)[..., :width].reshape(shape)",
        "return jax.random.normal(key, shape)",
        NOISE,
    ),
    Defect(
        "noise: columns of C that are too long",
        "training/noise.py",
        "jax.tree.map(lambda row: length * row, rows)",
        "jax.tree.map(lambda row: row, rows)",
        NOISE,
    ),
    Defect(
        "secret: shown",
        "training/secret.py",
        "value: bytes = field(repr=False)",
        "value: bytes",
        ("training/test_secret.py",),
    ),
    Defect(
        "secret: lots and noise from the same stream",
        "training/secret.py",
        'f"{purpose} {step}"',
        'f"{step}"',
        ("training/test_secret.py",),
    ),
    Defect(
        "sampling: the last lot of an epoch filled up with copies",
        "training/sampling.py",
        "return self._permutation(epoch)[place * plan.lot_size :][: plan.lot_size]",
        "return np.resize(self._permutation(epoch)[place * plan.lot_size :], plan.lot_size)",
        SAMPLING,
    ),
    Defect(
        "sampling: the short last lot of an epoch left out",
        "training/sampling.py",
        "epoch, place = divmod(step, plan.lots_per_epoch)",
        "epoch, place = divmod(step, plan.records // plan.lot_size)",
        SAMPLING,
    ),
    Defect(
        "sampling: empty lots filled up",
        "training/sampling.py",
        "    return drawn[1 : np.searchsorted(drawn, records)]",
        "    return drawn[1 : max(2, np.searchsorted(drawn, records))] % max(1, records)",
        SAMPLING,
    ),
    Defect(
        "sampling: a lot of fixed size called Poisson",
        "training/sampling.py",
        "                return _poisson(plan.records, plan.q, generator)",
        "                return generator.choice(plan.records, plan.lot_size, replace=False, shuffle=False)",
        SAMPLING,
    ),
    Defect(
        "sampling: the same lot at every step",
        "training/sampling.py",
        'self._secret.generator("lot", step)',
        'self._secret.generator("lot")',
        SAMPLING,
    ),
    Defect(
        "sampling: the same order in every epoch",
        "training/sampling.py",
        'self._secret.generator("epoch", epoch)',
        'self._secret.generator("epoch")',
        SAMPLING,
    ),
    Defect(
        "sampling: truncation left out",
        "training/sampling.py",
        "return lot if len(lot) <= plan.cap else",
        "return lot if len(lot) else",
        SAMPLING,
    ),
    Defect(
        "sampling: the rate of a cyclic lot taken over all records",
        "training/sampling.py",
        "rate = plan.bands * plan.lot_size / plan.records",
        "rate = plan.q",
        SAMPLING,
    ),
    Defect(
        "sampling: padding weighs as much as an example",
        "training/sampling.py",
        "    weights[records:] = 0\n",
        "",
        SAMPLING,
    ),
    Defect(
        "sampling: an owner's examples weigh 1 each",
        "training/sampling.py",
        "1 / counts, 0)",
        "1, 0)",
        SAMPLING,
    ),
    Defect(
        "sampling: an owner is not bounded",
        "training/sampling.py",
        "self.members = order[place < self.most]",
        "self.members = order[place < self.most + 1]",
        SAMPLING,
    ),
    Defect(
        "sampling: what is left of a lot dropped",
        "training/sampling.py",
        "    sizes = [size for size in parts if rest // size % 2] + [whole] * count",
        "    sizes = [whole] * count",
        SAMPLING,
    ),
    Defect(
        "sampling: a step beyond the plan",
        "training/sampling.py",
        ">= self.schedule.steps:",
        "> self.schedule.steps:",
        SAMPLING,
    ),
    Defect(
        "data: the first examples instead of the chosen ones",
        "data/arrays.py",
        "array[rows, :length]",
        "array[: len(rows), :length]",
        ("data/test_arrays.py",),
    ),
    Defect(
        "an attacker's success without δ",
        "guarantee.py",
        "return (1 + self.delta * shrunk) / (1 + shrunk)",
        "return 1 / (1 + shrunk)",
        ("test_guarantee.py",),
    ),
    Defect(
        "a side of a gradient that is no number is not kept finite, going forward",
        "bookkeeping.py",
        "return written if any(written is known for known in tape.finite) else finite(written)",
        "return written",
        in_clipping("a_gradient_that_is_no_number_counts_as_zero"),
    ),
    Defect(
        "a side of a gradient that is no number is not kept finite, going back",
        "bookkeeping.py",
        "_finite_backwards(output) if kind in _SIDES and _gradient_is_wide(weight, kind) else output",
        "output",
        in_clipping("a_gradient_that_is_no_number_counts_as_zero"),
    ),
    Defect(
        "resuming draws lots from the first one on",
        "training/loop.py",
        "else range(done, last)",
        "else range(last - done)",
        RESUME,
    ),
    Defect(
        "resuming forgets the optimizer",
        "training/loop.py",
        LOAD,
        "fresh = state\n        " + LOAD + "\n        state = state._replace(optimizer=fresh.optimizer)",
        RESUME,
    ),
    Defect(
        "resuming forgets the average",
        "training/loop.py",
        LOAD,
        "fresh = state\n        " + LOAD + "\n        state = state._replace(average=fresh.average)",
        RESUME,
    ),
    Defect(
        "resuming forgets the noise that later noise cancels",
        "training/loop.py",
        LOAD,
        "fresh = state\n        " + LOAD + "\n        state = state._replace(noise=fresh.noise)",
        RESUME,
    ),
    Defect(
        "resuming makes the last step twice",
        "training/loop.py",
        LOAD,
        LOAD + "\n        done -= done > 0",
        RESUME,
    ),
    Defect(
        "resuming pays once more",
        "training/loop.py",
        "charge.fingerprint, record.run)",
        "charge.fingerprint)",
        RESUME,
    ),
    Defect(
        "ledger: a run that starts again is charged again",
        "accounting/ledger.py",
        "if isinstance(record, Release) and self._charged(contents, record):",
        "if False:",
        LEDGER,
    ),
    Defect(
        "ledger: a run may become another one under its id",
        "accounting/ledger.py",
        "if replace(release, time=earlier.time) != earlier:",
        "if False:",
        LEDGER,
    ),
    Defect(
        "a resumed run may have another plan",
        "training/checkpoints.py",
        "self._refuse_other_plan(record.plan, plan)",
        "pass",
        ("training/test_checkpoints.py::test_another_plan_is_refused_by_the_field_that_differs",),
    ),
    Defect(
        "the secret lies in a folder that others may read",
        "training/checkpoints.py",
        "self.folder.chmod(0o700)",
        "pass",
        ("training/test_checkpoints.py::test_nobody_else_may_read_the_folder",),
    ),
    Defect(
        "two processes train in one folder",
        "training/checkpoints.py",
        "fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        ("training/test_checkpoints.py::test_two_processes_do_not_train_in_one_folder",),
    ),
    Defect(
        "cyclic lots accounted at q instead of bq",
        "accounting/subsampling.py",
        "rate = self.bands * self.lot_size / self.records",
        "rate = self.q",
        SUBSAMPLING,
    ),
    Defect(
        "cyclic lots: the last, partial round forgotten",
        "accounting/subsampling.py",
        "-(-self.steps // self.bands))",
        "max(1, self.steps // self.bands))",
        SUBSAMPLING,
    ),
    Defect(
        "train: what an earlier run cost is not added",
        "cli/start.py",
        "if not self.earlier:\n            return own",
        "if True:\n            return own",
        TRAIN,
    ),
    Defect(
        "train: a model inside a run taken for a public one",
        "cli/start.py",
        "for folder in (path, path.parent):",
        "for folder in ():",
        TRAIN,
    ),
    Defect(
        "train: a vocabulary made of the private texts",
        "cli/translation.py",
        "elif privacy.is_private:",
        "elif False:",
        TRAIN,
    ),
    Defect(
        "train: the seed of an earlier run forgotten in the statement",
        "cli/start.py",
        "NoiseSource.FIXED_SEED if known_seed else own.noise_source",
        "own.noise_source",
        TRAIN,
    ),
    Defect("train: the ledger not charged", "cli/training.py", "charge=self._charge(),", "charge=None,", TRAIN),
    Defect(
        "train: pairs instead of owners drawn and clipped",
        "cli/training.py",
        "owners=self.job.owners,",
        "owners=None,",
        TRAIN,
    ),
    Defect(
        "train: checkpoints, and the secret in them, left behind",
        "cli/training.py",
        "if not self.asked.keep_checkpoints:",
        "if False:",
        TRAIN,
    ),
    Defect(
        "train: an interrupted run keeps nothing",
        "training/loop.py",
        "if checkpoints and (due or leaves or done == last):",
        "if checkpoints and (due or done == last):",
        TRAIN,
    ),
    Defect(
        "translation: a target that sees the padding of its batch",
        "data/cache.py",
        "found[column.mask] = real",
        "found[column.mask] = np.ones_like(real)",
        ("tasks", "data/test_tokens.py"),
    ),
    Defect(
        "fingerprint: only the first of several files",
        "accounting/fingerprint.py",
        "for one in (dataset, *others)",
        "for one in (dataset,)",
        ("accounting/test_fingerprint.py",),
    ),
    Defect(
        "run folder: sentences of the training set taken for predictions",
        "runs/folder.py",
        'or "train" in split.lower()',
        "or False",
        ("runs",),
    ),
    Defect(
        "metrics: the first hypothesis only",
        "metrics/bleu.py",
        "[hypothesis for hypothesis, _ in pairs]",
        "[pairs[0][0] for _ in pairs]",
        ("metrics",),
    ),
    Defect(
        "train: a ledger for each direction of aligned files",
        "data/formats.py",
        "return min(self.files)",
        "return self.files[0]",
        ("cli/test_train.py::test_both_directions_of_two_aligned_files_are_charged_to_one_ledger",),
    ),
    Defect(
        "train: training pairs written out as held-out ones",
        "cli/training.py",
        "private & {path.resolve() for path in records.files}",
        "False",
        ("cli/test_train.py::test_bad_input_is_one_sentence_and_leaves_nothing",),
    ),
    Defect(
        "train: training texts written out as validation ones where a share is kept apart",
        "cli/training.py",
        'apart = divided and name == "test"',
        "apart = divided",
        (f"{READING}bad_input_is_one_sentence_and_leaves_nothing",),
    ),
    Defect(
        "answering: windows of a question counted as separate records",
        "cli/training.py",
        "return examples.records",
        "return None",
        (f"{READING}all_windows_of_a_question_are_one_record_of_the_guarantee",),
    ),
    Defect(
        "answering: padding seen by the loss",
        "tasks/answering.py",
        'jnp.where(batch["mask"][..., None], model(batch), -1e9)',
        "model(batch)",
        ("tasks/test_answering.py::test_the_loss_of_a_window_is_that_of_transformers_whoever_it_is_read_with",),
    ),
    Defect(
        "answering: an answer that a window cuts taken for whole",
        "tasks/answering.py",
        "if inside and known[0][0] <= answer.start and known[-1][1] >= stop:",
        "if inside:",
        ("tasks/test_answering.py::test_an_answer_that_a_window_cuts_is_no_answer_there",),
    ),
    Defect(
        "tagging: the length of a batchmate in the loss",
        "tasks/tagging.py",
        'jnp.maximum((batch["tags"] >= 0).sum(axis=1), 1)',
        'jnp.maximum((batch["tags"] >= 0).sum() / len(batch["tags"]), 1)',
        ("tasks/test_tagging.py::test_the_loss_of_a_sentence_is_that_of_transformers_whoever_it_is_read_with",),
    ),
    Defect(
        "train: classes taken from private data not named",
        "cli/reading_job.py",
        "self.exposures = (Exposure.CLASSES,)",
        "self.exposures = ()",
        (f"{READING}classes_that_were_taken_from_private_data_are_named_as_not_covered",),
    ),
    Defect(
        "a text becomes a part of a program that is kept",
        "training/independence.py",
        "    together = losses(batch)\n",
        "    together = jax.jit(lambda parameters: loss(parts.model(parameters), batch))(parts.parameters)\n",
        ("cli/test_reading.py::test_programs_that_are_kept_for_the_next_run_hold_nothing_of_the_texts",),
    ),
    Defect(
        "a reader: the mean over padding, too",
        "models/lstm.py",
        "    return total / jnp.maximum(jnp.sum(real, axis=1), 1)\n",
        "    return total / states.shape[1]\n",
        ("models/test_lstm.py", "models/test_readers.py"),
    ),
    Defect(
        "a reader: what is frozen drops",
        "models/readers.py",
        "        with dropout.paused():\n            states = self.encoder.embed(ids, types)\n",
        "        if True:\n            states = self.encoder.embed(ids, types)\n",
        ("models/test_readers.py", "tasks/test_features.py"),
    ),
    Defect(
        "norms: what lies behind the last position counts",
        "training/contractions.py",
        "inside = (row < positions) & (offset + column < width)",
        "inside = offset + column < width",
        ("training/test_contractions.py",),
    ),
    Defect(
        "features: what was kept of another model taken for this one's",
        "tasks/features.py",
        "reader.encoder.config, _digest(nnx.state(reader.encoder))",
        "reader.encoder.config",
        ("tasks/test_features.py",),
    ),
    Defect(
        "features: what was kept of other texts taken for these",
        "tasks/features.py",
        "made_by = _name(examples), reader.config",
        "made_by = reader.config",
        ("tasks/test_features.py",),
    ),
    Defect(
        "metric: noise divided by √2",
        "mechanisms/metric.py",
        "spherical(self.source, count, d) / eta",
        "spherical(self.source, count, d) / eta / 2**0.5",
        ("mechanisms/test_metric.py", "rewriting/test_word_metric.py"),
    ),
    Defect(
        "metric: rounding to the grid not made up for",
        "mechanisms/metric.py",
        "self.epsilon / (self.diameter + math.sqrt(d) * step)",
        "self.eta",
        ("mechanisms/test_metric.py",),
    ),
    Defect(
        "metric: noise in floating point on an answer in floating point",
        "mechanisms/metric.py",
        "return from_grid(steps, step, rows.shape)",
        "return rows + spherical(self.source, count, d) / eta",
        ("mechanisms/test_metric.py",),
    ),
    Defect(
        "metric: a radius of one exponential, whatever the dimension",
        "mechanisms/metric.py",
        "-np.sum(logs[:, :d], axis=1, keepdims=True)",
        "-np.sum(logs[:, :1], axis=1, keepdims=True)",
        ("mechanisms/test_metric.py",),
    ),
    Defect(
        "metric: noise of 23 random bits",
        "mechanisms/metric.py",
        "((words >> 12) + 0.5) * 2.0**-52",
        "((words >> 41) + 0.5) * 2.0**-23",
        ("mechanisms/test_metric.py",),
    ),
    Defect(
        "metric: a diameter of some pairs only",
        "mechanisms/metric.py",
        "if out[i] + out[j] <= farthest:",
        "if out[i] <= farthest:",
        ("mechanisms/test_metric.py",),
    ),
    Defect(
        "words: an unknown one is exchanged without noise",
        "rewriting/word_metric.py",
        "return np.concatenate(found)",
        "return np.where(rows < 0, drawn, np.concatenate(found))",
        ("rewriting/test_word_metric.py",),
    ),
    Defect(
        "words: the nearest by angle and not by distance",
        "rewriting/word_metric.py",
        "ends = -np.sum(rows**2, axis=1, keepdims=True) / 2",
        "ends = 0 * rows[:, :1]",
        ("rewriting/test_word_metric.py",),
    ),
    Defect(
        "words: the promise of a word stated for a text",
        "rewriting/word_metric.py",
        "return Unit.WORD",
        "return Unit.TEXT",
        ("rewriting/test_word_metric.py",),
    ),
    Defect(
        "words: the length of a text passed over",
        "rewriting/word_metric.py",
        "return super().guarantee().with_exposures(Exposure.LENGTH)",
        "return super().guarantee()",
        ("rewriting/test_word_metric.py",),
    ),
    Defect(
        "draws: Gumbel numbers of 32 random bits",
        "models/drawing.py",
        "first, second, third = words.astype(jnp.float32)",
        "first, second, third = words[:1].astype(jnp.float32)[0], 0.0, 0.0",
        ("models/test_drawing.py",),
    ),
    Defect(
        "draws: a block by its largest score and not by its sum",
        "models/drawing.py",
        "jax.nn.logsumexp(blocks, axis=1)",
        "jnp.max(blocks, axis=1)",
        ("models/test_drawing.py",),
    ),
    Defect(
        "clipped sampling: logits not clipped",
        "models/generation.py",
        "    if options.bounds is not None:  # NaN",
        "    if False and options.bounds is not None:  # NaN",
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "clipped sampling: a logit that is no number wins",
        "models/generation.py",
        "jnp.clip(jnp.nan_to_num(logits, nan=options.bounds[0]), *options.bounds)",
        "jnp.clip(logits, *options.bounds)",
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "clipped sampling: half the sensitivity",
        "rewriting/clipped_sampling.py",
        "return 2 * (high - low) + ",
        "return (high - low) + ",
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "clipped sampling: ε spent at every token",
        "rewriting/clipped_sampling.py",
        "(self.epsilon / self.tokens - _ROUNDING)",
        "(self.epsilon - _ROUNDING)",
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "clipped sampling: rounding not made up for",
        "rewriting/clipped_sampling.py",
        "_ROUNDING = 2.0**-12",
        "_ROUNDING = 0.0",
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "clipped sampling: the folder's top_k decides what can be drawn",
        "rewriting/clipped_sampling.py",
        '"beams": 1, "top_k": None, "top_p": 1.0}',
        '"beams": 1, "top_p": 1.0}',
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "clipped sampling: all texts drawn with the same key",
        "rewriting/clipped_sampling.py",
        "jax.vmap(partial(jax.random.fold_in, key))(place)",
        "jax.vmap(partial(jax.random.fold_in, key))(0 * place)",
        ("rewriting/test_clipped_sampling.py",),
    ),
    Defect(
        "adept: Laplace noise too small by √2",
        "rewriting/latent.py",
        "Laplace(clip.sensitivity.l1, ",
        "Laplace(clip.sensitivity.l1 / 2**0.5, ",
        (f"{ADEPT}the_audit_finds_no_more_than_is_promised",),
    ),
    Defect(
        "adept: Gaussian noise too small by √2",
        "rewriting/latent.py",
        "Gaussian(clip.sensitivity.l2, ",
        "Gaussian(clip.sensitivity.l2 / 2**0.5, ",
        (f"{ADEPT}the_audit_finds_no_more_than_is_promised",),
    ),
    Defect(
        "adept: latents released without noise",
        "rewriting/latent.py",
        "return clipped if self.mechanism is None else self.mechanism.release(clipped)",
        "return clipped",
        (f"{ADEPT}the_audit_finds_no_more_than_is_promised",),
    ),
    Defect(
        "adept: latents released without clipping",
        "rewriting/latent.py",
        "clipped = self.clip(self.encode(texts))",
        "clipped = np.asarray(self.encode(texts))",
        (f"{ADEPT}the_audit_finds_no_more_than_is_promised",),
    ),
    Defect(
        "adept: clipped in ℓ2 where noise is for ℓ1, as it was first published",
        "rewriting/latent.py",
        "return clip_by_norm(rows, self.bound, 1 if self.rule is Rule.L1 else 2)",
        "return clip_by_norm(rows, self.bound, 2)",
        (f"{ADEPT}no_two_clipped_latents_are_further_apart_than_the_sensitivity",),
    ),
    Defect(
        "adept: texts are read in a shape that tells their length",
        "rewriting/adept.py",
        "self.pretrained.model.config.tokens)",
        "int(rows.lengths.max()))",
        (f"{ADEPT}what_is_written_is_a_function_of_the_noisy_latent_alone",),
    ),
    Defect(
        "adept: a text that cannot be encoded is refused",
        "rewriting/adept.py",
        '.encode("utf-8", "replace").decode("utf-8")',
        "",
        (f"{ADEPT}a_text_that_cannot_be_encoded_is_not_refused",),
    ),
    Defect(
        "adept: what was taken from private texts is not named",
        "rewriting/adept.py",
        "return super().guarantee().with_exposures(*self.pretrained.exposures)",
        "return super().guarantee()",
        (f"{ADEPT}what_was_taken_from_private_texts_is_named_for_a_text_and_for_a_person",),
    ),
    Defect(
        "adept: training on private texts without noise is not named",
        "rewriting/adept.py",
        "if private and not plan.noise_multiplier:",
        "if False:",
        (f"{ADEPT}public_texts_are_no_exposure_and_private_ones_with_public_words_are_one",),
    ),
    Defect(
        "adept: a folder forgets what it was trained on",
        "models/pretrained/autoencoders.py",
        'exposures = tuple(Exposure(exposure) for exposure in said["exposures"])',
        "exposures = ()",
        (f"{ADEPT}training_on_private_texts_is_remembered_by_the_folder",),
    ),
    Defect(
        "adept: a latent that is no number is refused",
        "models/autoencoder.py",
        "np.nan_to_num(found.reshape(-1, model.config.latent).astype(np.float64))",
        "found.reshape(-1, model.config.latent).astype(np.float64)",
        AUTOENCODER,
    ),
    Defect(
        "adept: trained without clipping",
        "models/autoencoder.py",
        "latents = clipped(self.encode(ids[:, 1:], real[:, 1:]), self.config)",
        "latents = self.encode(ids[:, 1:], real[:, 1:])",
        AUTOENCODER,
    ),
    Defect(
        "adept: the encoder reads padding",
        "models/autoencoder.py",
        "self.encoder.run(self.decoder.tokens(ids), mask)",
        "self.encoder.run(self.decoder.tokens(ids), jnp.ones(mask.shape))",
        AUTOENCODER,
    ),
    Defect(
        "adept: a beam goes on from the state of another one",
        "models/autoencoder.py",
        "mine.astype(side.dtype)",
        "jnp.broadcast_to(jnp.eye(beams), mine.shape)",
        AUTOENCODER,
    ),
    Defect(
        "adept: an LSTM forgets where it was to start from",
        "models/layers.py",
        "        if start is None:\n",
        "        if True:\n",
        LAYERS,
    ),
    Defect(
        "adept: clipping leaves out what an LSTM started from",
        "models/layers.py",
        "use.note = jnp.swapaxes(before, 0, 1)",
        "use.note = jnp.swapaxes(before, 0, 1).at[:, 0].set(0)",
        ("models/test_autoencoder.py::test_book_keeping_is_the_definition",),
    ),
    Defect(
        "adept: the first mechanism adds the noise that it should",
        "rewriting/flawed.py",
        "return Laplace(2 * self.bound, ",
        "return Laplace(self._clip.sensitivity.l1, ",
        ("rewriting/test_flawed.py",),
    ),
    Defect(
        "DP-BART: noise divided by √2",
        "rewriting/dp_bart.py",
        "threads.map(self.mechanism.release, shares)",
        "(share + (self.mechanism.release(share) - share) / 2**0.5 for share in shares)",
        ("rewriting/test_dp_bart.py::test_an_audit_of_the_latent_finds_the_promise_kept", "rewriting/test_dp_bart.py"),
    ),
    Defect(
        "DP-BART: states are not clipped",
        "rewriting/dp_bart.py",
        "        clipped = self.clip(self.encode(texts))",
        "        clipped = np.asarray(self.encode(texts), np.float64)",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "DP-BART: what is kept of the states is counted as one position's",
        "rewriting/bottleneck.py",
        "        return self.length * len(self.kept)",
        "        return len(self.kept)",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "DP-BART: pruned neurons counted in the sensitivity",
        "rewriting/bottleneck.py",
        "return Clip(Rule.VALUE, self.bound, self.dimension)",
        "return Clip(Rule.VALUE, self.bound, self.length * self.width)",
        ("rewriting/test_dp_bart.py::test_thesis_section_6_6_1", "rewriting/test_dp_bart.py"),
    ),
    Defect(
        "DP-BART: the text of the first latent for all",
        "rewriting/dp_bart.py",
        "self.autoencoder.bottleneck.states(latents)",
        "self.autoencoder.bottleneck.states(latents[:1].repeat(len(latents), 0))",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "DP-BART: that a text is empty passes by the noise",
        "rewriting/dp_bart.py",
        "return [text for latents in ahead for text in self.decode(latents)]",
        "return [new if old else '' for old, new in zip(texts, [y for z in ahead for y in self.decode(z)])]",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "DP-BART: the decoder is told in training what is padding",
        "rewriting/bart_autoencoder.py",
        "memory = bart.remember(held, jnp.ones_like(mask))",
        "memory = bart.remember(held, mask)",
        (
            "rewriting/test_bart_autoencoder.py::test_the_loss_of_a_text_is_that_of_its_tokens_given_all_its_clipped_and_pruned_states",
            "rewriting/test_bart_autoencoder.py",
        ),
    ),
    Defect(
        "DP-BART: the encoder attends to padding",
        "rewriting/bart_autoencoder.py",
        "    return model.encode(ids, mask)\n",
        "    return model.encode(ids, jnp.ones_like(mask))\n",
        (
            "rewriting/test_bart_autoencoder.py::test_the_encoder_masks_its_own_padding",
            "rewriting/test_bart_autoencoder.py",
        ),
    ),
    Defect(
        "DP-BART: trained without clipping",
        "rewriting/bottleneck.py",
        "z = states if self.bound is None else jnp.clip(states, -self.bound, self.bound)",
        "z = states",
        ("rewriting/test_bart_autoencoder.py",),
    ),
    Defect(
        "DP-BART: in training pruned neurons have noise",
        "rewriting/bottleneck.py",
        "        return jnp.where(np.isin(np.arange(self.width), self.kept), z, 0)",
        "        return z",
        ("rewriting/test_bart_autoencoder.py",),
    ),
    Defect(
        "DP-BART: one noise for all examples of a batch",
        "rewriting/bottleneck.py",
        "jax.random.normal(key, shape))(keys)",
        "jax.random.normal(keys[0], shape))(keys)",
        ("rewriting/test_bart_autoencoder.py",),
    ),
    Defect(
        "DP-BART: the variance taken for the standard deviation",
        "rewriting/bottleneck.py",
        "return noise.sigma * jax.vmap",
        "return noise.sigma**2 * jax.vmap",
        ("rewriting/test_bart_autoencoder.py",),
    ),
    Defect(
        "DP-BART: hidden tokens are the special ones too",
        "rewriting/bart_autoencoder.py",
        "hidden & ~jnp.isin(ids, np.array(tokenizer.all_special_ids))",
        "hidden",
        ("rewriting/test_bart_autoencoder.py",),
    ),
    Defect(
        "DP-BART: PR+ trained without noise",
        "rewriting/bart_autoencoder.py",
        "self.trained(texts, training, noise=noise, private=private, source=source)",
        "self.trained(texts, training, private=private, source=source)",
        ("rewriting/test_bart_autoencoder.py",),
    ),
    Defect(
        "DP-BART: training on private texts not named",
        "rewriting/bart_autoencoder.py",
        "return learnt.exposing(Exposure.PRETRAINING) if private else learnt",
        "return learnt",
        ("rewriting/test_bart_autoencoder.py", "rewriting/test_pruning.py"),
    ),
    Defect(
        "DP-BART: what of private texts is in it not in the guarantee",
        "rewriting/dp_bart.py",
        "return super().guarantee().with_exposures(*self.autoencoder.exposures)",
        "return super().guarantee()",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "DP-BART: another ε than the trained one not warned of",
        "rewriting/dp_bart.py",
        "if trained_for not in (None, Budget(self.epsilon, self.delta)):",
        "if trained_for not in (None, Budget(self.epsilon, self.delta), trained_for):",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "pruning: by what a key is made of, not by what a neuron is used for",
        "rewriting/pruning.py",
        "jnp.sum(jnp.abs(K), axis=1)",
        "jnp.sum(jnp.abs(K), axis=0)",
        ("rewriting/test_pruning.py",),
    ),
    Defect(
        "pruning: quantile of all neurons, pruned ones too",
        "rewriting/pruning.py",
        "np.quantile(importance[left], checks",
        "np.quantile(importance, checks",
        ("rewriting/test_pruning.py",),
    ),
    Defect(
        "pruning: the neurons of the last round",
        "rewriting/pruning.py",
        "    return replace(now, bottleneck=before)",
        "    return now",
        ("rewriting/test_pruning.py",),
    ),
    Defect(
        "DP-BART: a text that cannot be read is refused",
        "rewriting/dp_bart.py",
        'text.encode("utf-8", "replace").decode("utf-8") for text in texts',
        "text for text in texts",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "DP-BART: a text whose states are no numbers is refused",
        "rewriting/dp_bart.py",
        "np.nan_to_num(self.autoencoder.encode(readable, self.writing.batch), nan=0.0)",
        "self.autoencoder.encode(readable, self.writing.batch)",
        ("rewriting/test_dp_bart.py",),
    ),
    Defect(
        "generation: not all of the states that are given are attended to",
        "models/generation.py",
        "return states[np.array(rows)], np.ones((len(rows), states.shape[1]), np.int32)",
        "return states[np.array(rows)], np.eye(states.shape[1], dtype=np.int32)[[0] * len(rows)]",
        ("models/test_generation.py::test_the_states_of_the_encoder_give_what_its_input_gives",),
    ),
    Defect(
        "subset response: as sure of m candidates as of one",
        "mechanisms/randomized_response.py",
        "others = (categories - preferred) / preferred * math.exp(-epsilon)",
        "others = (categories - preferred) / preferred**2 * math.exp(-epsilon)",
        ("mechanisms/test_subset_response.py",),
    ),
    Defect(
        "subset response: the others are drawn among all",
        "mechanisms/subset_response.py",
        "outside[lies] += np.sum(gaps <= outside[lies, None], axis=1)",
        "pass",
        ("mechanisms/test_subset_response.py",),
    ),
    Defect(
        "subset response: the event of too many categories",
        "mechanisms/subset_response.py",
        "max(2, self.candidates // self.preferred)",
        "self.candidates",
        ("mechanisms/test_subset_response.py",),
    ),
    Defect(
        "echo: the most alike sentence comes back as it is",
        "rewriting/echo.py",
        "chosen[rows] = self.mechanism.release(self.bank.nearest(vectors[rows], self.mechanism.preferred))",
        "chosen[rows] = self.bank.nearest(vectors[rows], 1)[:, 0]",
        ("rewriting/test_echo.py",),
    ),
    Defect(
        "echo: the least alike are preferred",
        "rewriting/echo.py",
        "-m, axis=1)[:, -m:]",
        "m, axis=1)[:, :m]",
        ("rewriting/test_echo.py",),
    ),
    Defect(
        "rewrite: the label's ε is left out of the statement",
        "cli/rewriting.py",
        "spent = one.epsilon + many * self.labels.epsilon",
        "spent = one.epsilon",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite: labels in clear are not named",
        "cli/rewriting.py",
        "exposures += [] if self.labels else [Exposure.LABELS]",
        "exposures += []",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite: a resumed run begins again",
        "cli/rewriting.py",
        "waiting = islice(records, file.lines, None)",
        "waiting = iter(records)",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite: a resumed run is charged again",
        "cli/rewriting.py",
        "self.guarantee.adjacency, mark, run)",
        "self.guarantee.adjacency, mark, None)",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite: other columns come out, too",
        "cli/rewriting.py",
        'yield from ({"text": text} for text in texts)',
        'yield from ({"text": text, "note": record.text} for text, record in zip(texts, records))',
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite: a person's texts cost as much as one",
        "rewriting/base.py",
        "epsilon=k * one.epsilon",
        "epsilon=one.epsilon",
        ("rewriting/test_base.py",),
    ),
    Defect(
        "pretrain: private texts make a rewriter, and nobody says so",
        "cli/pretrain.py",
        "(Exposure.PRETRAINING, Exposure.VOCABULARY) if self.data.unsafe else ()",
        "()",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "retell: noise divided by the root of two",
        "rewriting/retell.py",
        "noise(self.clip, self.epsilon",
        "noise(replace(self.clip, bound=self.clip.bound / math.sqrt(2)), self.epsilon",
        RETELL,
    ),
    Defect(
        "retell: what is no number is refused, which tells of the text",
        "rewriting/directions.py",
        "np.nan_to_num(np.asarray((vectors - self.mean) @ self.axes, np.float32), nan=0.0)",
        "np.asarray((vectors - self.mean) @ self.axes, np.float32)",
        RETELL,
    ),
    Defect(
        "retell: latents are clipped in each entry, so that they are farther apart",
        "rewriting/directions.py",
        "Clip(Rule.L2, self.bound, self.axes.shape[1])",
        "Clip(Rule.VALUE, self.bound, self.axes.shape[1])",
        RETELL,
    ),
    Defect(
        "retell: it learns from latents that are not clipped",
        "rewriting/retell.py",
        "latents = along.clip(along(vectors))",
        "latents = along(vectors).astype(np.float64)",
        RETELL,
    ),
    Defect(
        "retell: the decoder is always told the smallest noise",
        "rewriting/retell.py",
        "        if mechanism is None:\n            return low\n",
        "        if mechanism is None or low:\n            return low\n",
        RETELL,
    ),
    Defect(
        "retell: some of the states are hidden from the decoder",
        "rewriting/teller.py",
        "jnp.ones(states.shape[:2], jnp.int32)",
        "jnp.ones(states.shape[:2], jnp.int32).at[:, -1].set(0)",
        RETELL,
    ),
    Defect(
        "retell: all examples of a batch learn with the same noise",
        "rewriting/teller.py",
        "jax.random.normal(key, latents.shape[1:]))(keys)",
        "jax.random.normal(key, latents.shape[1:]))(jnp.broadcast_to(keys[:1], keys.shape))",
        RETELL,
    ),
    Defect(
        "retell: less noise in learning than the decoder is told",
        "rewriting/teller.py",
        "latents + sigmas[:, None] * drawn",
        "latents + sigmas[:, None] * drawn / math.sqrt(2)",
        RETELL,
    ),
    Defect(
        "retell: σ is drawn uniformly, so that small noise is hardly ever seen",
        "rewriting/teller.py",
        "        sigmas = jnp.exp(",
        "        span = self.low, self.high\n        sigmas = (",
        RETELL,
    ),
    Defect(
        "retell: the encoder is trained, though it is not used",
        "rewriting/retell.py",
        'frozen=["writer.encoder*"]',
        "frozen=[]",
        RETELL,
    ),
    Defect(
        "retell: it learns from private texts, and nobody says so",
        "rewriting/retell.py",
        "(Exposure.PRETRAINING,) if private else ()",
        "()",
        RETELL,
    ),
    Defect(
        "rewrite resumed: another promise than the run began with",
        "cli/rewriting.py",
        "            self._refuse_another_promise()\n",
        "",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite books: only the ledger of the first file is charged",
        "cli/rewriting.py",
        "for path, texts in files.items():",
        "for path, texts in [*files.items()][:1]:",
        ("cli/test_rewrite.py",),
    ),
    Defect(
        "rewrite twice: a file is rewritten as two splits",
        "cli/rewriting.py",
        "            _refuse_twice(private, corpus, bool(asked.data.held_out))\n",
        "            pass\n",
        ("cli/test_rewrite.py",),
    ),
)


def noticed(defect: Defect) -> str:
    """The first test that fails with the defect in place, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(source, copy / name)
        file = copy / "src/dpnlp" / defect.file
        text = file.read_text()
        if text.count(defect.old) != 1:
            sys.exit(f"{defect.what}: the text to replace stands {text.count(defect.old)} times in {defect.file}.")
        file.write_text(text.replace(defect.old, defect.new))
        paths = [f"tests/{path}" for path in defect.tests]
        try:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths],
                cwd=copy,
                env=os.environ | {"PYTHONPATH": str(copy / "src"), "JAX_COMPILATION_CACHE_DIR": str(CACHE)},
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS} s"
    # A test that is not there, or a defect that cannot even be imported, proves nothing.
    if run.returncode not in (0, 1):
        sys.exit(f"{defect.what}: its tests cannot be run.\n{run.stdout}{run.stderr}")
    failed = (line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(failed, "").removeprefix("FAILED ").split(" - ")[0]


def main() -> int:
    """Prints a table, and fails where a defect was missed."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [defect for defect in DEFECTS if word in f"{defect.what} {defect.file}"]
    missed = 0
    for defect in chosen:
        by = noticed(defect)
        missed += not by
        print(f"{'caught' if by else 'MISSED'}  {defect.what}  ({by or 'no test failed'})", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted defects are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
