"""What filters, scorers and strategies read and say: loads, prefixes, places, and why a replica was chosen."""

from __future__ import annotations

from enginehouse.domain.capabilities import UNKNOWN as UNKNOWN
from enginehouse.domain.explanation import Explanation as Explanation
from enginehouse.domain.explanation import PrefixFacts as PrefixFacts
from enginehouse.domain.explanation import RouteDetails as RouteDetails
from enginehouse.domain.explanation import RuleEffects as RuleEffects
from enginehouse.domain.explanation import Verdict as Verdict
from enginehouse.domain.replica import AT_REST as AT_REST
from enginehouse.domain.replica import Load as Load
from enginehouse.domain.replica import Reason as Reason
from enginehouse.interfaces.scorers import WeightedScorer as WeightedScorer
from enginehouse.interfaces.strategies import MOST_REMEMBERED as MOST_REMEMBERED
from enginehouse.interfaces.strategies import Placement as Placement
