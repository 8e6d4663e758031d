"""Binding to clusters: filter, score, select, divide; written with the reasons.

    binding ──> Demand ──────┐
                             ├─> filters ─> rank, select ─> assign ──> Decision ──> binding
    Clusters ──> Candidates ─┘

    controller.py   Scheduler: reads, decides, makes sure, writes
    demands.py      which clusters a policy means, what a binding asks for, where it stands
    filters.py      what is known of each cluster; which may be used, and why the others may not
    peers.py        workloads that are to be together, or apart: where the others are
    reservations.py what was placed and is in no report yet: two never get the same room
    decisions.py    which clusters should, how many replicas each gets; the decision, written

It never moves what may stay, and takes nothing off a cluster before a live read has confirmed why.
"""
