"""The revision log: memory, SQLite, etcd.

interface.py   revisions, events, and the Store protocol with its guarantees
index.py       what every key holds and held, in memory; what a write changes
watchers.py    watches and subscriptions: in sync, catching up, evicted
memory.py      reading and watching an index; the store that is nothing more
sqlite.py      the durable store: an index over a file
etcd/          the shared store: an index that follows an etcd cluster
commits.py     the thread that writes, and the writes that share an fsync
files.py       the SQLite file: who may open it, when it counts as written, what damage hides
records.py     one change as a row with its checksum; rows replayed into an index
encryption.py  values sealed and opened on their way, by kube-apiserver's configuration
kms.py         keys that a key management service wraps, over its plug-in's socket
compaction.py  when to forget, and how far
backups.py     files beside a running store: checked, copied, restored

Only the event loop touches an index and its watchers; only the writer thread touches a file.
"""
