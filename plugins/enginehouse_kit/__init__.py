"""The kit for authors of plugins: base classes and helpers of theirs, and what tests them.

::

    kinds                            the kinds of types that bundled plugins use and the core does not, from these:
    guards, interceptors, discoverers, scalers, rescheduling, limit_stores, usage_stores   their interfaces
    drivers/, schedulers, limits/    base classes and bookkeeping
    credentials                      what requests show, for authenticators
    swap_plans                       the plans of swappers, in the names of models
    cache_events                     follows the prefix caches of engines
    projection, offload              the worst case of a KV cache; chooses the requests that leave a full one
    selection                        chooses the requests that move to another engine
    prefixes/, prefix_index          prompts in chunks; remembers which of them each engine has read
    gateway_client, files, output    reads files, asks a running gateway, writes a new file, and prints, for commands
    virtual_loop                     an event loop that jumps to the next event instead of waiting
    testing                          all that tests of plugins import, from these:
    make, fake_*, played_server      test data, and fakes of what a plugin gets
    checks/, expect                  the conformance checks
    engines, gateway, process        simulated engines and gateways, as real processes
    pytest_plugin                    fixtures
    plugin_manager                   the installed plugins, as the core sees them
    installed/                       lists, checks and searches plugins
    scaffold, template/              the first files of a new plugin
"""
