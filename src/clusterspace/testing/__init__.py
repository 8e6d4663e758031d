"""The test kit we ship.

steps.py             until something holds; edit and delete as a user would
settled.py           settled: a barrier after which nothing comes of what has happened
clocks.py            time that a test moves
builders.py          objects that tests begin with
live_cluster.py      a cluster as one finds it: thousands of objects of many tools, from a seed
live_pods.py         what makes its pods other than their templates, and runs them without nodes
certificates.py      authorities and certificates made for a test
stage.py             a hub, members of any kind, their agents and the controllers
programs.py          programs of ours as processes, which start at once
quick_commands.py    the same for what shells and `up` start
hubs.py              hubs in this event loop, real API servers, and their clients
hub_stores.py        whether the hubs of a run have files, or one etcd
etcd.py              members of etcd, a strict proxy in front, and three hubs behind
kine.py              kine with SQLite or Postgres behind it
faults.py            what goes wrong on the way: silence, cuts, lies
hostile.py           a member that is against us
crashes.py           an end at every step of a controller
client_contract.py   what every client of an API server can rely on
store_contract.py    what every store promises
watch_histories.py   what streams told, checked against what happened
"""
