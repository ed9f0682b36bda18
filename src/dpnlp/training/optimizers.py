"""What is done with a private gradient. It is post-processing: nothing here changes what a run promises."""

from dataclasses import dataclass
from enum import StrEnum

import jax.numpy as jnp
import optax

from dpnlp import checks
from dpnlp.checks import BadInput


class Method(StrEnum):
    """The optimizers by name."""

    SGD = "sgd"
    ADAM = "adam"
    ADAFACTOR = "adafactor"


class Decay(StrEnum):
    """How the learning rate goes on after its warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"  # down to 0 at the last step
    COSINE = "cosine"  # down to 0 at the last step
    INVERSE_SQRT = "inverse-sqrt"  # with 1/√step, as for T5


@dataclass(frozen=True)
class Optimizer:
    """An optimizer and its learning rate, which rises from 0 over `warmup_steps` and then follows `decay`."""

    learning_rate: float
    method: Method = Method.ADAM
    decay: Decay = Decay.CONSTANT
    warmup_steps: int = 0
    momentum: float = 0.0  # of SGD
    weight_decay: float = 0.0  # decoupled from the gradient (Loshchilov and Hutter 2019)

    def __post_init__(self) -> None:
        checks.positive("learning_rate", self.learning_rate)
        checks.count("warmup_steps", self.warmup_steps, least=0)
        checks.non_negative("weight_decay", self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise BadInput(f"momentum = {self.momentum}: it must be at least 0 and below 1.")
        if self.momentum and self.method is not Method.SGD:
            raise BadInput(f"momentum = {self.momentum}: only sgd has one; {self.method} has its own moments.")

    def schedule(self, steps: int) -> optax.Schedule:
        """The learning rate at each of `steps` steps."""
        if self.warmup_steps >= steps:
            raise BadInput(f"warmup_steps = {self.warmup_steps}: it must be below the {steps} steps; warm up faster.")
        rate, warm, rest = self.learning_rate, self.warmup_steps, steps - self.warmup_steps
        after = {
            Decay.CONSTANT: optax.constant_schedule(rate),
            Decay.LINEAR: optax.linear_schedule(rate, 0.0, rest),
            Decay.COSINE: optax.cosine_decay_schedule(rate, rest),
            Decay.INVERSE_SQRT: lambda step: rate * jnp.sqrt(max(warm, 1) / (jnp.maximum(step, 0) + max(warm, 1))),
        }[self.decay]
        if not warm:
            return after
        rising = optax.linear_schedule(rate / warm, rate, warm - 1) if warm > 1 else optax.constant_schedule(rate)
        return optax.join_schedules([rising, after], [warm])

    def build(self, steps: int) -> optax.GradientTransformation:
        """The optimizer for a run of that many steps."""
        rate = self.schedule(steps)
        decayed = optax.add_decayed_weights(self.weight_decay) if self.weight_decay else optax.identity()
        match self.method:
            case Method.SGD:
                direction = optax.trace(self.momentum) if self.momentum else optax.identity()
            case Method.ADAM:
                direction = optax.scale_by_adam()
            case Method.ADAFACTOR:
                direction = optax.scale_by_factored_rms()
        return optax.chain(direction, decayed, optax.scale_by_learning_rate(rate))
