"""Binding to clusters: filter, score, select, divide; written with the reasons.

    binding ──> Demand ──────┐
                             ├─> filters ─> selection ─> division ──> Decision ──> binding
    Clusters ──> Candidates ─┘

    controller.py   Scheduler: reads, decides, makes sure, writes
    affinities.py   which clusters are meant; groups tried in order
    demands.py      what a policy says about placing, what a binding asks for, where it stands
    candidates.py   what is known of each cluster, and how many more replicas it can hold
    filters.py      which clusters may, and why the others may not
    selection.py    which clusters should: scored, and spread over groups
    division.py     how many replicas each gets; the arithmetic, alone
    decisions.py    the steps in their order, and the decision as it is written on a binding

It never moves what may stay, and takes nothing off a cluster before a live read has confirmed why.
"""
