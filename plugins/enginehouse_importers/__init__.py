"""``enginehouse import NAME``: configurations of other programs, turned into ``enginehouse.toml``.

::

    kit/             what all importers use: tables that note what nobody read, and backends
    llama_swap/      llama-swap's config.yaml
    litellm          LiteLLM's config.yaml
    olla             Olla's config.yaml
    nexus            Nexus's nexus.toml
    ollama           the models of a running Ollama, or a Modelfile
    router_commands  the command lines of vllm-router and sglang-router
    presets          llama-server's presets of models
    commands         the commands
"""
