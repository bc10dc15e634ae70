"""Fixtures for tests of plugins. pytest loads them if Enginehouse is installed, unless it has ``-p no:enginehouse``."""

from enginehouse_kit.pytest_plugin import CheckType as CheckType
from enginehouse_kit.pytest_plugin import StartEngine as StartEngine
from enginehouse_kit.pytest_plugin import StartGateway as StartGateway
from enginehouse_kit.pytest_plugin import enginehouse_check as enginehouse_check
from enginehouse_kit.pytest_plugin import enginehouse_engine as enginehouse_engine
from enginehouse_kit.pytest_plugin import enginehouse_gateway as enginehouse_gateway
from enginehouse_kit.pytest_plugin import enginehouse_plugins as enginehouse_plugins
