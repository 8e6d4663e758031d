"""Many replies to one answer; pure, synchronous, no I/O.

parts.py  one cluster's part: a list or a Table taken apart once, its items unread
lists.py  many lists to one: items keep their text, names are changed
tables.py  many Tables to one, on one set of columns and a column for the cluster
failures.py  when some clusters fail: fail, or answer and warn
versions.py  per-cluster resourceVersions in one opaque string
continues.py  where a list across clusters goes on, in one opaque string
watches.py  many event streams to one, with vectors that can be gone on from
watch_items.py  one object of a watch, as read from an event or a list of its cluster
watch_styles.py  events as a client wants them: objects, metadata, or rows of a Table
sent_objects.py  what a stream has told of one cluster
discovery.py  what the fleet serves: the union
reviews.py  may I, asked of a fleet
releases.py  which Kubernetes each cluster runs, and the fleet's own /version
openapi.py  for each group version, whose document is shown
"""
