"""Engines: launching, supervising, probing and stopping them.

::

    managed_engines     every engine that the gateway launches, on all hosts
    host                one host: its engines, its queue, the reports of their state
    host_context        the parts of the house that every host uses
    status_publisher    reports to the fleet, the relay, the prober and observers
    load_request        a load that an operator asks for
    engine_pool         the managed engines of one host, started and stopped by its queue
    supervisor          one of them: its start, its sleep and its end
    make_supervisor     makes it
    readiness           waits until its engine can take requests
    start_errors        the errors of an engine that does not start
    out_of_memory       whether it lacked memory
    back_off            the pause after failures
    memory_meter        how much memory engines take
    idle                which engines have been idle for their ttl
    launch_line         from configuration, driver and port to a command
    ports               the loopback ports of engines
    state_file          the running engines, for the next gateway
    sleepers            which of them may be asleep
    recording_launcher  a launcher that keeps the state file up to date
    probing             the health and the models of every backend
"""
