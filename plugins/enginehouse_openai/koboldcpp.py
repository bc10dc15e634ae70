"""The driver of KoboldCpp, whose API is https://lite.koboldai.net/koboldcpp_api."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, LoadedModel, ServedModel
from enginehouse.errors import LoadFailed
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import LoadingDriver, read_json

_NOTHING = "inactive"
"""The name of the model that KoboldCpp has when it has none."""
_UNLOAD = "unload_model"
_PREFIX = "koboldcpp/"


class KoboldCppDriver(LoadingDriver):
    """KoboldCpp, which has one model. Started with ``--admin``, it restarts itself to load another one."""

    server = "KoboldCpp"
    health_path = "/api/extra/version"

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The loaded model, and the models of its admin folder under the names that they have once loaded."""
        current, version = await _current(engine), await _version(engine)
        length = read_json(await engine.request("GET", "/api/extra/true_max_context_length"), _Length).value
        served = {name: ServedModel(name) for name in await _files(engine, version)}
        if current:
            able = Capabilities(context_length=length or None, vision=version.vision)
            served[current] = ServedModel(current, able)
        return list(served.values())

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        current = await _current(engine)
        return [LoadedModel(current)] if current else []

    async def load(self, engine: EngineClient, model: str) -> None:
        """Ask for a restart with the model's file. The server cannot be reached for a while."""
        file = (await _files(engine, await _version(engine))).get(model)
        if file is None:
            raise LoadFailed(
                f"KoboldCpp did not load '{model}': its admin folder has no such file (--admin --admindir)"
            )
        await self._restart(engine, model, file)

    async def unload(self, engine: EngineClient, model: str) -> None:
        """Ask for a restart without a model, if ``model`` is the one that is loaded."""
        if await _current(engine) == model:
            await self._restart(engine, model, _UNLOAD)

    async def concurrency(self, engine: EngineClient) -> int | None:
        """It works on one request at a time, and queues others."""
        return 1

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        perf = read_json(await engine.request("GET", "/api/extra/perf"), _Perf)
        return InstanceStatus(num_waiting_requests=perf.queue, num_running_requests=0 if perf.idle else 1)

    async def _restart(self, engine: EngineClient, model: str, file: str) -> None:
        answer = await engine.request("POST", "/api/admin/reload_config", msgspec.json.encode({"filename": file}))
        if answer.status != 200 or not read_json(answer, _Done).success:
            why = "it refuses to restart: does it have --admin, and is 'api_key' its admin password?"
            raise (self.unload_failed if file == _UNLOAD else self.load_failed)(model, why)


class _Version(msgspec.Struct):
    """``admin``: above 0 if the server can load other models."""

    admin: int = 0
    vision: bool | None = None


class _Name(msgspec.Struct):
    result: str


class _Length(msgspec.Struct):
    value: int


class _Perf(msgspec.Struct):
    queue: int = 0
    idle: int = 1


class _Done(msgspec.Struct):
    success: bool = False


async def _version(engine: EngineClient) -> _Version:
    return read_json(await engine.request("GET", "/api/extra/version"), _Version)


async def _current(engine: EngineClient) -> str:
    """The name of the loaded model; empty if there is none."""
    name = read_json(await engine.request("GET", "/api/v1/model"), _Name).result
    return "" if name.removeprefix(_PREFIX) == _NOTHING else name


async def _files(engine: EngineClient, version: _Version) -> dict[str, str]:
    """The weights of the admin folder by their models' names. What a ``.kcpps`` file loads is not known before."""
    if not version.admin:
        return {}
    listed = read_json(await engine.request("GET", "/api/admin/list_options"), list[str])
    return {f"{_PREFIX}{PurePosixPath(file).stem}": file for file in listed if file.endswith(".gguf")}
