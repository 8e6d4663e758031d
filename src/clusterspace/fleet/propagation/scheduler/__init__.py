"""Binding to clusters: filter, score, select, divide; written with the reasons.

    binding ──> Demand ──┐
                         ├─> filters ─> scores ─> spread ─> division ──> Decision ──> binding
    Clusters ─> Candidates

affinities.py   which clusters are meant; groups tried in order
placements.py   what a policy says about placing, as values
estimates.py    how many more replicas a cluster can hold
candidates.py   what is known of each cluster
demands.py      what a binding asks for, and where it stands
filters.py      which clusters may, and why the others may not
scores.py       which clusters should
spread.py       how many of them, over which groups
division.py     how many replicas each gets; the arithmetic, alone
decisions.py    the steps in their order: where an object is to be
results.py      a decision as it is written on a binding
controller.py   reads, decides, makes sure, writes

It never moves what may stay, and takes nothing off a cluster before a live read has confirmed why.
"""
