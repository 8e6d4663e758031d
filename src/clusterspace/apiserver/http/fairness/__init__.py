"""API priority and fairness: whose request is served next, and how many of theirs at once.

    request ──> FlowSchema ──> priority level ──> queue of its flow ──> seats ──> turn of the loop

flow_schemas.py  the two kinds of objects, read; which schema a request matches, whose flow it is
fair_queues.py   one priority level: seats, queues by shuffle sharding, who is next
turns.py         how much begins in one turn of the event loop, shared between levels
controller.py    FlowController: levels made of objects, flows found again, limits adjusted: seats
                 that levels lend each other, by what they have lately had use for
step.py          PriorityAndFairness, the step of the chain; 429 with a time to come back; how many
                 seats a request takes: lists by what is stored, writes by who watches
dumps.py         `/debug/api_priority_and_fairness/`: levels, queues and requests as text

Seats are Kubernetes': they say how many requests are on their way. An event loop works on one at a
time, so that a user with fifty on their way would keep everybody else waiting for fifty. Hence
turns: of what is ready only about a millisecond's worth begins before the loop looks at its sockets
again, and what begins is what the fair queues say.
"""
