"""Engines: launching, supervising, probing and stopping them.

::

    managed_engines     every engine that the gateway launches, on all hosts
    host                one host: its engines, its queue, the reports of their state
    host_context        the parts of the house that every host uses
    status_publisher    reports to the fleet, the relay, the prober and observers
    load_request        a load that an operator asks for
    engine_pool         the managed engines of one host, started and stopped by its queue
    supervisor          one of them: its start, its sleep and its end
    model_driver        speaks with its engine
    launch_line         from configuration, driver and port to a command
    start_errors        the errors of an engine that does not start
    back_off            the pauses after failures
    memory_meter        how much memory engines take
    idle                which engines have been idle for their ttl
    ports               the loopback ports of engines
    state_file          what the next gateway must know of the engines
    engine_records      launches engines and keeps the state file up to date
    guards              drivers and launchers whose answers need no check
    probing             the health and the models of every backend
"""
