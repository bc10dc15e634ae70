"""Commands that need no running gateway, such as ``enginehouse explain``.

::

    check                     is the configuration right, and what is in effect
    checked_config            builds the gateway of a configuration, starts nothing, and finds all errors at once
    render                    a configuration as in a file and as a page, and its schema
    masks                     hides what may be a secret in these
    offline_gateway           decides as the gateway of a configuration would, and starts nothing
    explain                   what would be decided: route, swap
    pulled                    pull, list, show and rm: downloaded models
    run, served_files         serves models' files without a configuration
"""
