"""Tables of the configuration that plugins read, and how they speak about its keys."""

from __future__ import annotations

from enginehouse.config.routing import MirrorSettings as MirrorSettings
from enginehouse.config.routing import RuleSettings as RuleSettings
from enginehouse.config.rules import is_base_url as is_base_url
from enginehouse.config.scheduling import GroupSettings as GroupSettings
from enginehouse.config.scheduling import MatrixSettings as MatrixSettings
from enginehouse.config.schema import InterceptorSettings as InterceptorSettings
from enginehouse.config.schema import ZoneSettings as ZoneSettings
from enginehouse.config.shape import dotted as dotted
from enginehouse.domain.names import did_you_mean as did_you_mean
from enginehouse.interfaces.misspelt import misspelt as misspelt
