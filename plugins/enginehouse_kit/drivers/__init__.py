"""Base classes and helpers for drivers."""

from __future__ import annotations

from enginehouse_kit.drivers.continuing import continue_answer, continue_ids, continue_text, fill_in_tokens, read_json
from enginehouse_kit.drivers.engine_metrics import MetricSample, metric_sums, read_metrics
from enginehouse_kit.drivers.launch_options import option_arguments
from enginehouse_kit.drivers.loading_driver import LoadingDriver
from enginehouse_kit.drivers.model_folder import (
    find_model_folders,
    missing_folder,
    model_folder_name,
    read_model_folder,
)
from enginehouse_kit.drivers.openai_driver import OpenAICompatibleDriver, read_model_list

__all__ = [
    "LoadingDriver",
    "MetricSample",
    "OpenAICompatibleDriver",
    "continue_answer",
    "continue_ids",
    "continue_text",
    "fill_in_tokens",
    "find_model_folders",
    "metric_sums",
    "missing_folder",
    "model_folder_name",
    "option_arguments",
    "read_json",
    "read_metrics",
    "read_model_folder",
    "read_model_list",
]
