"""The interfaces that plugins implement, one module each. They import only the data types of ``domain``.

A plugin class may declare ``Config``, a ``msgspec.Struct`` of its parameters. The gateway then decodes the parameters
strictly and calls the class with the ``Config`` object. It calls a class without ``Config`` without arguments.
"""
