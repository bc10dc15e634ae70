"""Follows the prefix caches of engines that publish their events as vLLM does.

::

    ranks      the events of a whole engine, from those of its data-parallel ranks
    follower   receives the events of one rank over ZeroMQ
    numbered   notices lost messages, and has them sent again
    decode     reads messages
"""
