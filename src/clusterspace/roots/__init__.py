"""Composition roots: the only modules that build things, one for each process and command.

Processes:

    hub.py          the hub API server; hub_state.py what its verbs work on
    fleet.py        the fleet API server: many clusters behind one address
    workers.py      several processes behind that address, and who starts them
    controllers.py  membership, propagation and execution, behind one lease
    agent.py        the agent of a Pull cluster
    watchdog.py     the watchdog of a Push cluster
    webhook.py      the hub's rules, for a kube-apiserver that is the hub
    sim.py          a simulated member
    chains.py       the steps a request goes through, of both API servers
    local/          all of these on one machine, as `clusterspace up` runs them

For one run of a command:

    init.py         `init`: a kube-apiserver becomes the hub
    hub_rules.py    which rules hold on such a hub, for `doctor`
    membership.py   `join`, `unjoin`, `register`, `unregister`
    tokens.py       `token`
    revocations.py  `certs revoke`, `revoked`, `reinstate`
    rotation.py     `certs rotate`: authorities and keys replaced, step by step
    migration.py    from SQLite to etcd, or back; what is in etcd backed up, restored, checked
    cluster_migration.py  `migrate`: a live cluster planned, taken in and given back
    proofs.py             `migrate snapshot` and `prove`: what ran before and after
    workloads.py    `promote`, `resume`
    moves.py        `drain`, `rebalance`: one write each, and a look now and then
    simulation.py   `simulate`, and the plans of those two: live objects read, nothing written
    why.py          `why`: the hub's objects read, the clusters concerned asked
    diff.py         `diff`: one object asked of every cluster, those that agree counted
    interpretation.py     `interpret`: scripts of customizations tried, with no hub
    search.py       `search`: kinds listed of every cluster, as tables, and a statement over them
    page.py         `ui`: a code that logs a browser in, once
    top.py          `top`: the collections of the first screen, followed and judged
    sql.py          its SQL: tables in memory, statements that can only read, within bounds

Shared:

    audit_logs.py   audit logs: opened with their policy, verified by `audit verify`
    settings.py     what the processes are started with
    interpreting.py what the hub says of kinds of people's own, for commands that judge objects
    clients.py      kubeconfigs found, clients opened and closed; connections a process keeps
    fairness.py     API priority and fairness, by the settings of a server
    config_files.py files of the operator: read, and followed while a process runs; who may log in
    stores.py       the store: opened with its keys, which are followed; `store rewrite`
    installation.py the files of a data directory: authority, certificates, store
    kubeconfigs.py  kubeconfigs we write
    tls.py          server certificates that are renewed, and whose client certificates count
    processes.py    when a process ends; `/metrics` of those that serve no API
"""
