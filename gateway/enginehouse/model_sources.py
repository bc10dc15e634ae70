"""Model sources: downloads, and the models that were downloaded."""

from __future__ import annotations

from enginehouse.config.schema import PullSettings as PullSettings
from enginehouse.engines.pulled_models import Download as Download
from enginehouse.engines.pulled_models import PulledModels as PulledModels
from enginehouse.engines.pulled_models import PulledNote as PulledNote
from enginehouse.interfaces.model_sources import PulledFile as PulledFile
from enginehouse.interfaces.model_sources import PulledModel as PulledModel
from enginehouse.interfaces.model_sources import PullProgress as PullProgress
