"""The private engine: sampling, clipping, noise, the plan, the step and the loop."""

from dpnlp.training.clipping import Clipping, Rule
from dpnlp.training.loop import Charge, Options, Outcome, train
from dpnlp.training.optimizers import Optimizer
from dpnlp.training.plan import Plan
from dpnlp.training.secret import Secret
from dpnlp.training.sharding import Placement

__all__ = ["Charge", "Clipping", "Optimizer", "Options", "Outcome", "Placement", "Plan", "Rule", "Secret", "train"]
