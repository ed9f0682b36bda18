"""Noise on one answer: the mechanisms of the lectures, sampled so that no floating-point attack sees through them."""

from dpnlp.mechanisms.exponential import Exponential
from dpnlp.mechanisms.gaussian import Gaussian, analytic_epsilon, analytic_sigma, classical_sigma
from dpnlp.mechanisms.laplace import Laplace
from dpnlp.mechanisms.metric import Metric
from dpnlp.mechanisms.partition_selection import PartitionSelection
from dpnlp.mechanisms.randomized_response import RandomizedResponse
from dpnlp.mechanisms.subset_response import SubsetResponse

__all__ = [
    "Exponential",
    "Gaussian",
    "Laplace",
    "Metric",
    "PartitionSelection",
    "RandomizedResponse",
    "SubsetResponse",
    "analytic_epsilon",
    "analytic_sigma",
    "classical_sigma",
]
