"""A fleet on this machine: what `clusterspace up`, `status`, `logs` and `doctor` work with.

up.py        which parts there are, and in which order they start and stop
children.py  one part as a child process: started, watched, started again, stopped
files.py     the directory: who runs, on which ports, with which kubeconfig
doctor.py    what can be wrong, each with what to do
demo/        the sample shop
"""
