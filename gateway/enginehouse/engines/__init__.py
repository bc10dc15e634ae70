"""Engines: launching, supervising, probing and stopping them.

::

    hosts         every host, for the gateway and its operators
    engine_host   one of them: its engines meet its scheduler and the fleet
    means         what every host works with
    herald        what the rest of the house is told of its engines
    wish          a load that somebody asks for, not a request
    host_engines  the managed engines of one host: what its scheduler starts and stops
    supervisor    one of them: started, ready, asleep, gone
    back_off      how long one that fails again and again is left alone
    idle          which ones have had nothing to do for long enough
    launch_line   configuration + driver + port -> what to run
    ports         loopback ports to run it on
    local         the bundled launcher: a process group of its own, here
    processes     what the operating system knows of them
    log_file      what engines print into
    last_words    what they tell of one that did not start
    state_file    which engines run, for the next gateway
    recorded      a launcher that keeps that up to date
    prober        every backend, asked again and again how it is and what it serves
    health_check  the question to one of them
    bounded       a time limit that holds
"""
