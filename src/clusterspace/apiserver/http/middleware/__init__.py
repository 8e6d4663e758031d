"""The chain, in the order a request meets it.

outcomes      how many, how they ended, how long they took; an exception becomes a Status body
limits        a budget of time for short requests, none for watches; how many at once
authenticate  credentials to user; those that were refused: logged, counted, and slowed down
audit         who did what, and who read what is secret
authorize     act-as headers, checked and applied; user, verb, resource to yes or no
recheck       the same questions again while a long answer goes on, and its end when it is no
"""
