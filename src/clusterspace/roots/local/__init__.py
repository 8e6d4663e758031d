"""A fleet on this machine: what `clusterspace up`, `status`, `logs` and `doctor` work with.

up.py        which components there are, and in which order they start and stop
children.py  one component as a child process: started, watched, started again, stopped
files.py     the directory: who runs, on which ports, with which kubeconfig
doctor.py    what can be wrong, each with what to do
demo/        the sample shop
"""
