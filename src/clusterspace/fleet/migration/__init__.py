"""A whole live cluster taken in: discovered, planned, taken over, proved, and given back.

    member ──> selection ──> judgement ──> plan (a file) ──> apply ──> proof         undo

plan.py             the file: entries that people edit, how it is read, what is refused in it
plan_reading.py     its YAML read entry by entry, so that a large one takes little memory
spool.py            many entries in a file that nobody sees, few of them in memory
selection.py        which objects are taken, which are left and why; in which order
ownership.py        whose an object is today: the marks of tools, operators and hubs, read
judgement.py        what a takeover would do to an object: dry runs on hub and member
planning.py         a plan made for a live cluster, page by page
progress.py         what the hub keeps: Migration, MigrationItems, originals in Secrets
apply.py            a plan carried out, from wherever it stands
undo.py             a migration taken back, as a whole or one object of it
groups.py           what may go to other clusters, what stays, what is to be on both
spreading.py        what was taken spread to more clusters, moved to others, and home again
waiting.py          until controllers have done their part: looked at, seldom, for all of them
handover.py         what another hub places handed over to this hub, and back; in all its kinds
hub_planning.py     a plan for a Karmada: what it places, where, and who would notice
carrying.py         its templates, bindings and policies, as this hub is to have them
karmada_handover.py     how it lets go, and how members change hub
kubefleet.py        what the objects of a KubeFleet say: what is placed where, who owns it there
kubefleet_planning.py   a plan for a KubeFleet, placement by placement
kubefleet_handover.py   how it lets go, and how members change hub
snapshots.py        the identities of what runs, recorded page by page, and as a file
kept_snapshots.py   the one from before a migration, kept on the hub
proof.py            two snapshots compared: changed, gone, new, not seen, explained
proof_documents.py  that comparison as text, JSON and HTML

It stands above the flows: it reads the member as `execution` would write to it, and writes to the
hub what people would write, templates and policies. Nothing below knows that it exists.
"""
