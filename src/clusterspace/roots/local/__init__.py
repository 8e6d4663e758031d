"""A fleet on this machine: what `clusterspace up`, `status`, `logs` and `doctor` work with.

up.py        which components there are, and in which order they start and stop
children.py  one component as a child process: started, watched, started again, stopped
files.py     the directory: who runs, on which ports, with which kubeconfig
parts.py     how the parts of a fleet are, here or elsewhere, each asked itself
doctor.py    what can be wrong with it, or with any fleet, each with what to do
production.py  what a review for production would still ask of a hub
demo/        the sample shop
"""
