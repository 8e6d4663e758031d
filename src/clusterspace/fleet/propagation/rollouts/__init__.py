"""Rollouts of policies: a change of templates reaches their clusters stage by stage.

    controller.py  PolicyRollouts: states of templates, the run of a policy, which cluster has what
    decisions.py   what is a new state, which one a cluster gets, and whether it is well with it

How a run goes on is decided as for placements: placements/staged_updates.py.
"""
