"""The verbs, one function each, by what people come for.

local.py        `up`, `down`, `logs`: a fleet on this machine
health.py       `status`, `doctor`: how a fleet is, here or elsewhere
servers.py      `hub`, `fleet`, `sim`: run an API server
controllers.py  `controllers`, `agent`: run what works beside the servers
init.py         `init`, `webhook`: a kube-apiserver becomes the hub

membership.py   `join`, `unjoin` (the hub reaches the cluster), `register`, `unregister` (it dials)
tokens.py       `token`: let clusters register themselves
clusters.py     `clusters`, `cordon`, `uncordon`, `taint`, `kubeconfig`

migrate.py      `migrate`: a whole live cluster planned, taken in and given back
spreads.py      `migrate spread`, `migrate move`: to more clusters, or to others
migrating.py    what the commands of migrations share
proofs.py       `migrate snapshot`, `migrate prove`: what ran before and after, compared
workloads.py    `promote`, `resume`
moves.py        `drain`, `rebalance`, `simulate`: workloads elsewhere, for real or not yet
why.py          `why`: an object followed to its clusters, or back from one
diff.py         `diff`: one object across all clusters, and which of them differ
search.py       `search`: SQL over the objects of every cluster
ui.py           `ui`: the page, opened in a browser
top.py          `top`: the first screen of the page, in a terminal
interpret.py    `interpret`: scripts of customizations tried, with no hub
store.py        `store`: back up, restore and check the hub's data
certs.py        `certs`: rotate keys and authorities, revoke credentials
audit.py        `audit`: find out whether an audit log was tampered with
config.py       `config`, `version`, `completion`
"""
