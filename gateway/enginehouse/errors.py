"""Errors that plugins raise and get, beside their base classes, which ``enginehouse`` has."""

from __future__ import annotations

from enginehouse.domain.errors import BodyTooLarge as BodyTooLarge
from enginehouse.domain.errors import BudgetExhausted as BudgetExhausted
from enginehouse.domain.errors import CannotContinue as CannotContinue
from enginehouse.domain.errors import ConfigErrors as ConfigErrors
from enginehouse.domain.errors import Forbidden as Forbidden
from enginehouse.domain.errors import LoadFailed as LoadFailed
from enginehouse.domain.errors import ModelNotFound as ModelNotFound
from enginehouse.domain.errors import NoHealthyBackend as NoHealthyBackend
from enginehouse.domain.errors import NotEnoughMemory as NotEnoughMemory
from enginehouse.domain.errors import NotFound as NotFound
from enginehouse.domain.errors import Overloaded as Overloaded
from enginehouse.domain.errors import PluginFailed as PluginFailed
from enginehouse.domain.errors import PullFailed as PullFailed
from enginehouse.domain.errors import QueueFull as QueueFull
from enginehouse.domain.errors import QueueTimeout as QueueTimeout
from enginehouse.domain.errors import RateLimited as RateLimited
from enginehouse.domain.errors import ReplicaLost as ReplicaLost
from enginehouse.domain.errors import ShuttingDown as ShuttingDown
from enginehouse.domain.errors import Unauthorized as Unauthorized
from enginehouse.domain.errors import UpstreamError as UpstreamError
from enginehouse.domain.errors import UpstreamTimeout as UpstreamTimeout
from enginehouse.domain.errors import ZoneUnavailable as ZoneUnavailable
from enginehouse.domain.errors import shortened as shortened
