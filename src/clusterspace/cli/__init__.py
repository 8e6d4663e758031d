"""Commands for people: one verb, one function; what a verb does is in `processes`.

Read in this order:

    main.py         the command table: `clusterspace VERB`, `kubectl clusterspace VERB`
    settings.py     flag, environment variable, key of the config file
    output.py       tables, JSON, YAML and names; exit codes
    sentences.py    errors as one sentence with what helps
    foreground.py   what commands that run a part share
    hub_option.py   what commands that talk to the hub share
    member_cidrs.py where members may be, for commands that connect to them
    completion.py   what the Tab key offers; `completion`
    config.py       `config show`

    up.py           `up`, `down`, `status`, `logs`, `doctor`: a fleet on this machine
    serve.py        `hub`
    fleet.py        `fleet`, `kubeconfig`
    controllers.py  `controllers`
    agent.py        `agent`
    sim.py          `sim`

    joining_options.py  what `join` and `register` ask alike
    join.py         `join`, `unjoin`: clusters the hub reaches
    tokens.py       `token`
    register.py     `register`, `unregister`: clusters whose agent dials the hub
    clusters.py     `clusters`, `cordon`, `uncordon`, `taint`
    promote.py      `promote`
    resume.py       `resume`
    explain.py      `why`
    store.py        `store`

A verb's module imports what is heavy inside its function: `--help` and the Tab key are quick.
"""
