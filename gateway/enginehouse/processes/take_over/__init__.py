"""A new gateway takes over a running one: its listening sockets, its engines, its lock, its clients' connections.

Read the modules in this order::

    messages            what the two processes say to each other
    channel             messages and file descriptors over a unix socket
    place               where a running gateway can be reached: a socket in its state folder
    running_side        the side of the gateway that runs
    new_side            the side of the gateway that takes over
    connections         clients' connections, which go to the new gateway one by one
"""
