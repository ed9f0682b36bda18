"""Federated averaging with the user as unit (McMahan et al. 2018, arXiv 1710.06963), by the steps of the engine.

A round is a step of `training` in which a user contributes a clipped model update instead of a clipped gradient.
"""

from dpnlp.federated.averaging import Averaging
from dpnlp.federated.estimators import Estimator, Weights
from dpnlp.federated.local import LocalSGD
from dpnlp.federated.quantile import Quantile

__all__ = ["Averaging", "Estimator", "LocalSGD", "Quantile", "Weights"]
