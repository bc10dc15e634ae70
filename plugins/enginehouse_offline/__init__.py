"""Commands that need no running gateway, such as ``enginehouse explain``.

::

    check, config_page        is the configuration right, and what is in effect
    checked_config            builds the gateway of a configuration, and starts nothing
    all_errors                all errors of a configuration, also those that another one hides
    render                    a configuration as in a file, and the schema
    masks                     hides what may be a secret in these
    schema                    what a configuration may have, for editors
    offline_gateway           decides as the gateway of a configuration would, and starts nothing
    assumed_state             what runs, as a file says
    explain/                  what would be decided: route, swap
    pulled                    pull, list, show and rm: downloaded models
    run, served_files         serves models' files without a configuration
    installed_engines         the engines that this machine can launch
    model_folders             the folders in which programs keep models
"""
