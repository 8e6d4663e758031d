"""The store on an etcd cluster, or on whatever speaks its protocol.

messages.py    the few messages of etcd's API that are spoken here, as bytes
client.py      channels to the members: failover, deadlines, whether an answer can be trusted
prefix.py      the names of a store's keys, whose a prefix is, all that is in it at a revision
store.py       the Store: writes by compare-and-set, an index that one watch feeds
snapshots.py   all that a prefix holds at one revision, member by member: for backups and checks
compaction.py  who makes etcd forget, when, and how far

Only what kine understands is said: three shapes of transactions on one key each, ranges with a
limit and a revision, one watch with progress requests, and the compare of `compact_rev_key`.
"""
