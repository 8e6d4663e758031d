"""A fleet on this machine: what `clusterspace up`, `status`, `logs` and `doctor` work with.

up.py        in which order the components start and stop
commands.py  which components there are, as command lines
etcd.py      the members of etcd, with `up --ha`: program, certificates, command lines
load_balancer.py  one address before several hubs, or several gateways
children.py  one component as a child process: started, watched, started again, stopped
files.py     the directory: who runs, on which ports, with which kubeconfig
parts.py     how the parts of a fleet are, here or elsewhere, each asked itself
doctor.py    what can be wrong with it, or with any fleet, each with what to do
production.py  what a review for production would still ask of a hub
demo/        the sample shop
"""
