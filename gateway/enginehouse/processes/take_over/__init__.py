"""A new gateway takes over a running one: its listening sockets, its engines, its lock, its clients' connections.

Read the modules in this order::

    messages            what the two processes say to each other
    channel             messages and file descriptors over a unix socket in the state folder
    running_side        the side of the gateway that runs, and clients' connections, which it passes one by one
    new_side            the side of the gateway that takes over
"""
