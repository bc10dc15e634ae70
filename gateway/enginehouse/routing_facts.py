"""What filters, scorers and strategies read and say: loads, prefixes, places, and why a replica was chosen."""

from __future__ import annotations

from enginehouse.domain.capabilities import UNKNOWN
from enginehouse.domain.explanation import Explanation, PrefixFacts, RouteDetails, Verdict
from enginehouse.domain.replica import AT_REST, Load, Reason
from enginehouse.interfaces.scorers import WeightedScorer
from enginehouse.interfaces.strategies import MOST_REMEMBERED, Placement

__all__ = [
    "AT_REST",
    "MOST_REMEMBERED",
    "UNKNOWN",
    "Explanation",
    "Load",
    "Placement",
    "PrefixFacts",
    "Reason",
    "RouteDetails",
    "Verdict",
    "WeightedScorer",
]
