"""Commands for people. What a command builds and runs is in `roots`.

To add a verb: a function in the module of `commands/` it belongs to, and a line in the table of
`main.py`. Its help text, `docs/reference/cli.md`, its variables and its keys of the config file are
made from the function's options.

    main.py         the command table: `clusterspace VERB`, `kubectl clusterspace VERB`
    commands/       the verbs
    options.py      sets of options that commands share: where the hub is, how a server listens
    settings.py     every option's three names: flag, environment variable, key of the config file
    running.py      an event loop for a command; errors as one sentence with what helps
    output.py       tables, JSON, YAML and names; exit codes
    completion.py   what the Tab key offers

A verb's module imports what is heavy inside its function: `--help` and the Tab key are quick.
"""
