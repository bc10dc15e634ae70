"""Engines: launching, supervising, probing and stopping them.

::

    managed_engines     every engine that the gateway launches, on all hosts
    host                one host: its engines, its queue, the reports of their state
    host_context        the parts of the house that every host uses
    host_replicas       the replicas of one host
    host_rules          what its scheduler decides by, and its memory
    host_gpus           its GPUs, and which engine gets which
    idle                which engines have been idle for their ttl
    model_files         what the files of its models tell before their engines run
    retirements         replicas that leave service
    status_publisher    reports to the fleet, the relay, the prober and observers
    load_request        a load that an operator asks for
    engine_pool         the managed engines of one host, started and stopped by its queue
    ownership           which gateway may start and stop them, while one takes over from another
    adoption            takes over engines that run already
    back_off            the pauses after failures, and second tries
    memory_meter        how much memory engines take
    supervisor          one engine: its states, its sleep and its end
    engine_start        one start of it
    start_limits        how long that may take, and without a sign of progress
    start_errors        the errors of an engine that does not start
    pulled_models       downloads its model, and the folder of all
    placements          the options by which its launcher does
    engine_places       finds its place, or one of the loopback ports
    model_driver        speaks with it
    launch_line         from configuration, driver and port to a command
    missing_program     whether the program of a command is there
    engine_records      launches engines and keeps the state file up to date
    state_file          what the next gateway must know of the engines
    remote_queues       the queues of backends elsewhere that have a limit
    remote              servers elsewhere that load models themselves
    followed_caches     the prefix caches of engines that publish events
    cache_sockets       where engines that the gateway launches publish them
    guards              drivers and launchers whose answers need no check
    probing             the health, the models and the figures of every backend
"""
