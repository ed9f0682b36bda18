"""Pictures of a plan: ε over the steps, and the distribution of the privacy loss."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpnlp.accounting import pld
from dpnlp.accounting.accountant import Accountant, epsilon_after
from dpnlp.accounting.planning import Plan
from dpnlp.accounting.subsampling import Sampling
from dpnlp.checks import BadInput
from dpnlp.guarantee import Adjacency

_COLORS = {Accountant.PLD: "#1b6ca8", Accountant.RDP: "#d1495b", Accountant.MOMENTS: "#edae49"}
_POINTS = 32
_BARS = 300


def draw_plan(plan: Plan, file: Path) -> None:
    """Writes the two pictures side by side; the file's ending chooses the format."""
    if not plan.guarantee.is_private:
        raise BadInput("--plot: a run without noise has no finite ε to draw.")
    figure = Figure(figsize=(11, 4.4), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2)
    _draw_steps(left, plan)
    _draw_losses(right, plan)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise BadInput(f"--plot = {file}: it cannot be written ({error}); try a path that ends in .png.") from None


def _draw_steps(axes: Axes, plan: Plan) -> None:
    schedule, delta, adjacency = plan.schedule, plan.guarantee.delta, plan.guarantee.adjacency
    shuffled = schedule.sampling is Sampling.SHUFFLED
    # ε grows like the root of the steps; shuffled lots cost as much at the first step of an epoch as at its last.
    unit, most = (schedule.lots_per_epoch, schedule.epochs) if shuffled else (1, schedule.steps)
    counts = np.append(0, np.unique(np.round(np.linspace(1, np.sqrt(most), _POINTS) ** 2)) * unit)
    style = "steps-pre" if shuffled else "default"
    for accountant in Accountant:
        try:
            costs = [
                epsilon_after(int(n), schedule, plan.noise_multiplier, delta, adjacency, accountant) for n in counts
            ]
        except BadInput:
            continue
        axes.plot(counts, costs, color=_COLORS[accountant], label=accountant, drawstyle=style)
    if shuffled:
        poisson = replace(schedule, sampling=Sampling.POISSON)
        costs = [epsilon_after(int(n), poisson, plan.noise_multiplier, delta, Adjacency.ADD_REMOVE) for n in counts]
        axes.plot(counts, costs, color="grey", linestyle=":", label="as if Poisson: no guarantee")
    axes.axhline(plan.guarantee.epsilon, color="grey", linewidth=0.8)
    axes.annotate(f"ε = {plan.guarantee.epsilon:.4g}", (0, plan.guarantee.epsilon), (6, 4), textcoords="offset points")
    axes.set(xlabel="steps", ylabel=f"ε at δ = {delta:g}", title="Cost over the steps", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)


def _draw_losses(axes: Axes, plan: Plan) -> None:
    """The density of ln(P/Q); δ is what lies beyond ε, a loss l counting 1 − e^{ε − l}."""
    event = plan.schedule.event(plan.noise_multiplier)
    losses = pld.losses(event, 0.5, plan.guarantee.adjacency)
    reach = np.cumsum(losses.masses)
    first, last = np.searchsorted(reach, [1e-5, 1 - 1e-7])
    last = max(int(last), int(np.searchsorted(losses.values(), 1.1 * plan.guarantee.epsilon)))
    group = max(1, (last - first) // _BARS)
    bars = np.arange(first, min(last, len(reach)), group)
    density = np.add.reduceat(losses.masses[: bars[-1] + group], bars) / (group * losses.step)
    middle = losses.values()[bars] + group * losses.step / 2
    axes.plot(middle, density, color=_COLORS[Accountant.PLD])
    axes.fill_between(middle, density, color=_COLORS[Accountant.PLD], alpha=0.15)
    axes.axvline(plan.guarantee.epsilon, color=_COLORS[Accountant.RDP], linewidth=1.2)
    axes.annotate(
        f"ε = {plan.guarantee.epsilon:.4g}\nbeyond it: δ = {plan.guarantee.delta:g}",
        (plan.guarantee.epsilon, 0.98),
        (-6, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right",
        va="top",
    )
    title = f"Privacy loss of the whole run (one {plan.guarantee.unit})"
    axes.set(xlabel="ln of how much likelier the result became", ylabel="density", title=title, ylim=(0, None))
