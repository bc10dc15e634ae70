"""The gateway as a real process, for tests."""

from enginehouse_kit.gateway import RunningGateway as RunningGateway
from enginehouse_kit.gateway import Status as Status
