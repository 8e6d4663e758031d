"""The chain, in the order a call meets it.

measure        how many, how they ended, how long they took
catch_errors   the only place an exception becomes a Status body
deadlines      a budget for short requests; none for watches
authenticate   credentials to user
failed_logins  those that were refused: told, counted, and slowed down
audit          who did what, and who read what is secret
impersonate    act-as headers, checked and applied
limits         how many at once
authorize      user, verb, resource to yes or no
recheck        the same questions again while a long answer goes on, and its end when it is no
"""
