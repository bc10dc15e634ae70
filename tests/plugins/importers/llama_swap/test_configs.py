"""Whole configurations as people have them."""

from __future__ import annotations

import shlex

from enginehouse.config.scheduling import GroupSettings
from enginehouse.config.schema import BodyFilterSettings, ModelSettings, TimeoutSettings
from enginehouse.config.secrets import Secret
from tests.support.imported_config import Import

SIMPLE = """
healthCheckTimeout: 300
models:
  "llama3:8b":
    cmd: |
      # the small one
      /opt/llama.cpp/build/bin/llama-server
        --port ${PORT} \\
        -m "/srv/models/Meta Llama 3 8B.gguf"
        # --flash-attn
        -ngl 99 --chat-template-kwargs '{"enable_thinking": false}'
    env:
      - "CUDA_VISIBLE_DEVICES=0,1"
    aliases:
      - gpt-4o-mini
      - small
    ttl: 600
  embed:
    cmd: llama-server --port ${PORT} -m embed.gguf --embeddings
    ttl: 0
    unlisted: true
    name: Embedder
    description: for search
"""


def test_a_simple_configuration(imported: Import) -> None:
    config, notes, warnings = imported(SIMPLE)
    llama = config.models["llama3:8b"]
    assert shlex.split(llama.command) == [
        "/opt/llama.cpp/build/bin/llama-server",
        "--port",
        "${port}",
        "-m",
        "/srv/models/Meta Llama 3 8B.gguf",
        "-ngl",
        "99",
        "--chat-template-kwargs",
        '{"enable_thinking": false}',
    ]
    assert (llama.driver, llama.env, llama.ttl, llama.start_timeout) == (
        "llamacpp",
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        600,
        300,
    )
    embed = ModelSettings(
        driver="llamacpp",
        command="llama-server --port ${port} -m embed.gguf --embeddings",
        start_timeout=300,
        name="Embedder",
        description="for search",
        unlisted=True,
    )
    assert config.models["embed"] == embed
    assert config.routing.aliases == {"gpt-4o-mini": "llama3:8b", "small": "llama3:8b"}
    assert list(notes) == []
    assert warnings == ()


WITH_MACROS = """
globalTTL: 300
macros:
  server: >
    ${env.BIN}/llama-server-b4321
    --port ${PORT}
  ctx: 4096
  args: "--ctx-size ${ctx} --alias ${MODEL_ID}"
  temp: 0.60
  quiet: false
models:
  qwen:
    macros:
      ctx: 16384
      file: qwen.gguf
    cmd: |
      ${server}
      -m ${env.MODELS}/${file}
      ${args}
    env: ["HF_TOKEN=${env.HF_TOKEN}", "NAME=${MODEL_ID}"]
    cmdStop: kill -INT ${PID}
    filters:
      stripParams: "top_p, top_k"
      setParams:
        temperature: ${temp}
        stream_options: {include_usage: "${quiet}"}
        user: "${MODEL_ID} at ${temp}"
      setParamsByID:
        "${MODEL_ID}:think": {chat_template_kwargs: {enable_thinking: true}}
        "${MODEL_ID}:fast": {chat_template_kwargs: {enable_thinking: false}}
  container:
    proxy: http://127.0.0.1:${PORT}
    cmd: docker run --rm --name ${MODEL_ID} -p ${PORT}:8000 vllm/vllm-openai:v0.8 --model x ${args}
    cmdStop: docker stop ${MODEL_ID}
    ttl: -1
"""


def test_macros_become_what_they_stand_for(imported: Import) -> None:
    config, notes, _ = imported(WITH_MACROS)
    qwen, container = config.models["qwen"], config.models["container"]
    assert qwen.command.split() == [
        "${env:BIN}/llama-server-b4321",
        "--port",
        "${port}",
        "-m",
        "${env:MODELS}/qwen.gguf",
        *("--ctx-size", "16384", "--alias", "${model}"),
    ]
    assert qwen.env == {"HF_TOKEN": "${env:HF_TOKEN}", "NAME": "${model}"}
    assert qwen.stop_command == "kill -INT ${pid}"
    assert qwen.filters == BodyFilterSettings(
        strip=["top_p", "top_k"],
        set={"temperature": 0.6, "stream_options": {"include_usage": False}, "user": "qwen at 0.6"},
    )
    assert config.routing.aliases == {"qwen:think": "qwen", "qwen:fast": "qwen"}
    assert config.models["qwen:fast"].filters.set == {"chat_template_kwargs": {"enable_thinking": False}}
    assert not config.models["qwen:fast"].launches
    assert (container.driver, container.stop_command, container.ttl) == ("vllm", "docker stop ${model}", 300)
    assert "-p ${port}:8000" in container.command
    assert "--ctx-size 4096 --alias ${model}" in container.command
    assert list(notes) == ["models.qwen.cmd"]


WITH_GROUPS = """
models:
  chat-a: {cmd: "llama-server --port ${PORT} -m a"}
  chat-b: {cmd: "llama-server --port ${PORT} -m b", useModelName: org/chat-b, aliases: [b]}
  code:   {cmd: "sglang serve --port ${PORT} -m c"}
  embed:  {cmd: "llama-server --port ${PORT} -m e"}
  far:    {proxy: "http://10.0.0.9:8080/", aliases: [away]}
groups:
  chat: {members: [chat-a, chat-b], swap: true, exclusive: false}
  always: {persistent: true, swap: false, exclusive: false, members: [embed, far]}
hooks:
  on_startup:
    preload: [embed, b]
"""


def test_groups_and_preloads_go_with_the_models_that_are_launched(imported: Import) -> None:
    config, notes, warnings = imported(WITH_GROUPS)
    assert config.scheduling.swapper == "group"
    assert config.scheduling.groups == {
        "chat": GroupSettings(members=["chat-a", "org/chat-b"], exclusive=False),
        "always": GroupSettings(members=["embed"], swap=False, exclusive=False, persistent=True),
    }
    assert [name for name, model in config.models.items() if model.preload] == ["org/chat-b", "embed"]
    assert config.models["code"].driver == "sglang"
    assert config.backends["far"].url == "http://10.0.0.9:8080"
    assert config.backends["far"].models == ["far"]
    assert config.routing.aliases == {"b": "org/chat-b", "chat-b": "org/chat-b", "away": "far"}
    assert list(notes) == ["models.chat-b.useModelName", "groups.always.members[1]"]
    assert warnings == ()


WITH_MATRIX = """
models:
  gemma-3: {cmd: "llama-server --port ${PORT} -m g", useModelName: google/gemma-3}
  "qwen:7b": {cmd: "llama-server --port ${PORT} -m q"}
  voxtral: {cmd: "vllm serve v --port ${PORT}"}
  big: {cmd: "llama-server --port ${PORT} -m l"}
  lent: {proxy: "http://10.0.0.2"}
routing:
  scheduler:
    use: fifo
    settings: {fifo: {priority: {"qwen:7b": 10, gemma-3: -1}}}
  router:
    use: matrix
    settings:
      groups: {unused: {members: [big]}}
      matrix:
        vars: {q: "qwen:7b", v: voxtral, L: big, x: lent}
        evict_costs: {v: 50, L: 30, gemma-3: 2}
        sets:
          pair: "gemma-3 | q"
          standard: "+pair & v"
          mixed: "x & q"
          wide: "+mixed & v"
          full: L
"""


def test_a_matrix_and_priorities(imported: Import) -> None:
    config, notes, warnings = imported(WITH_MATRIX)
    scheduling = config.scheduling
    assert scheduling.swapper == "matrix"
    assert scheduling.priorities == {"qwen:7b": 10, "google/gemma-3": -1}
    assert scheduling.matrix.vars == {"gemma-3": "google/gemma-3", "q": "qwen:7b", "v": "voxtral", "L": "big"}
    assert scheduling.matrix.costs == {"v": 50, "L": 30, "gemma-3": 2}
    assert list(scheduling.matrix.sets.items()) == [("pair", "gemma-3 | q"), ("standard", "+pair & v"), ("full", "L")]
    assert scheduling.groups["unused"].members == ["big"]
    settings = "routing.router.settings.matrix"
    assert list(notes) == [
        "models.gemma-3.useModelName",
        f"{settings}.vars.x",
        f"{settings}.sets.mixed",
        f"{settings}.sets.wide",
    ]
    assert warnings == ()


WITH_PEERS = """
apiKeys: ["sk-plain", "${env.TEAM_KEY}", "sk-plain"]
models:
  shared: {cmd: "llama-server --port ${PORT} -m s"}
peers:
  shared:
    proxy: http://192.168.1.23:8080
    models: [model_a, shared]
  openrouter:
    proxy: https://openrouter.ai/api/
    apiKey: ${env.OPENROUTER_KEY}
    models: [meta/llama-3, z-ai/glm, model_b]
    timeouts: {connect: 5, responseHeader: 90}
    filters:
      stripParams: "top_k"
      setParams: {provider: {data_collection: deny, zdr: true}}
  another: {proxy: "http://192.168.1.24", models: [model_b]}
"""


def test_peers_are_backends_and_keys_are_keys(imported: Import) -> None:
    config, notes, warnings = imported(WITH_PEERS, TEAM_KEY="team", OPENROUTER_KEY="router")
    assert [(key.name, key.key, key.admin) for key in config.auth.keys] == [
        ("client-1", "sk-plain", True),
        ("client-2", "team", True),
    ]
    router, another = config.backends["openrouter"], config.backends["another"]
    assert (router.url, router.api_key) == ("https://openrouter.ai/api", "router")
    secrets = (router.api_key, config.auth.keys[1].key)
    assert [each.reference for each in secrets if isinstance(each, Secret)] == ["env:OPENROUTER_KEY", "env:TEAM_KEY"]
    assert router.models == ["meta/llama-3", "z-ai/glm", "model_b"]
    assert router.timeouts == TimeoutSettings(connect=5, first_byte=90)
    assert config.routing.aliases == {
        "shared/model_a": "model_a",
        "openrouter/meta/llama-3": "meta/llama-3",
        "openrouter/z-ai/glm": "z-ai/glm",
    }
    filters = BodyFilterSettings(strip=["top_k"], set={"provider": {"data_collection": "deny", "zdr": True}})
    assert config.models["z-ai/glm"] == ModelSettings(filters=filters)
    assert config.models["shared"].filters == BodyFilterSettings()
    assert config.backends["shared-peer"].models == ["model_a", "shared"]
    assert {config.backends["shared-peer"].priority, router.priority, another.priority} == {100}
    assert {"peers.shared", "peers.shared.models[1]", "peers.openrouter.models[2]", "peers.another.models[0]"} <= {
        *notes
    }
    assert warnings == ()


def test_nothing_is_a_configuration_too(imported: Import) -> None:
    config, notes, _ = imported("# nothing yet\n")
    assert (config.models, notes) == ({}, {})


TOGETHER = """
models:
  a: {cmd: "llama-server --port ${PORT} -m a.gguf", aliases: [shared, own]}
  b: {cmd: "llama-server --port ${PORT} -m b.gguf", aliases: [shared]}
  c: {cmd: "llama-server --port ${PORT} -m c.gguf"}
"""


def test_models_that_do_not_collide_load_at_once_as_in_llama_swap(imported: Import) -> None:
    config, _, _ = imported(TOGETHER + "groups:\n  together: {members: [a, b], swap: false}\n")
    assert config.hosts["local"].max_loads == 0
    assert imported(TOGETHER).config.hosts == {}, "there is one group, and it loads one model at a time"


def test_a_duplicate_alias_stays_with_the_first_model_and_is_noted(imported: Import) -> None:
    config, notes, _ = imported(TOGETHER)
    assert config.routing.aliases == {"shared": "a", "own": "a"}
    assert notes == {"models.b.aliases": '"shared" left out: it is an alias of "a" already'}


def test_of_preloads_that_stop_each_other_the_last_is_kept_because_it_stays_loaded(imported: Import) -> None:
    preload = "hooks:\n  on_startup: {preload: [a, b, c]}\n"
    config, notes, _ = imported(TOGETHER + preload + "groups:\n  g: {members: [a, b]}\n")
    assert [name for name, model in config.models.items() if model.preload] == ["b", "c"]
    assert 'loading "b" stops it' in notes["hooks.on_startup.preload[0]"]
