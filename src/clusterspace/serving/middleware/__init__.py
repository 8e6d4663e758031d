"""The chain, in the order a call meets it.

measure        how many, how they ended, how long they took
catch_errors   the only place an exception becomes a Status body
deadlines      a budget for short requests; none for watches
authenticate   credentials to user
audit          who did what
impersonate    act-as headers, checked and applied
limits         how many at once
authorize      user, verb, resource to yes or no
"""
