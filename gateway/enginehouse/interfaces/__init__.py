"""The interfaces that plugins implement, one module each. They import only the data types of ``domain``.

What several of them share has modules of its own: ``launch_spec`` and ``places`` for engines that are launched,
``driver_support`` for what a driver can do, ``engine_caches`` for prefix caches, ``hand_over`` for prompts that go from
one engine to another, ``engine_words`` for what engines say. ``accounting`` is what an authenticator may be besides.

A plugin class may declare ``Config``, a ``msgspec.Struct`` of its parameters. The gateway then decodes the parameters
strictly and calls the class with the ``Config`` object. It calls a class without ``Config`` without arguments.
"""
