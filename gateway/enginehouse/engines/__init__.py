"""Engines: launching, supervising, probing and stopping them.

::

    managed_engines     every engine that the gateway launches, on all hosts
    host                one host: its engines, its queue, the reports of their state
    host_context        the parts of the house that every host uses
    status_publisher    reports to the fleet, the relay, the prober and observers
    load_request        a load that an operator asks for
    engine_pool         the managed engines of one host, started and stopped by its queue
    adoption            takes over engines that run already
    supervisor          one of them: its start, its sleep and its end
    model_driver        speaks with its engine
    launch_line         from configuration, driver and port to a command
    start_errors        the errors of an engine that does not start
    back_off            the pauses after failures
    memory_meter        how much memory engines take
    host_gpus           the GPUs of one host, and which engine gets which
    followed_caches     the prefix caches of engines that publish events
    idle                which engines have been idle for their ttl
    ports               the loopback ports of engines
    state_file          what the next gateway must know of the engines
    engine_records      launches engines and keeps the state file up to date
    guards              drivers and launchers whose answers need no check
    probing             the health and the models of every backend
"""
