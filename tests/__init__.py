"""All tests. docs/writing-tests.md says how to write one, CONTRIBUTING.md when to run which.

unit/         one module at a time, without disk or network; the folders mirror src/clusterspace
component/    one package with its real neighbours: hub, gateway, controllers, store, simulator
flows/        whole stories: joins, leaves, propagation, placements, pages of the docs
conformance/  kubectl and other people's clients; recordings of real servers; a real kube-apiserver
              where there is one
attacks/      users and members who mean harm
robustness/   processes that are killed, again and again; slow, not in `make test`
bench/        measurements: `make bench`; not tests
meta/         docs, package maps, words and reference pages agree with the code
corpus/       recorded answers of real systems, as JSON; its README says of what
walks.py      which modules a piece of work passes through; flows/test_walk_*.py print it
conftest.py   what every test gets: guards against tasks, sockets and logged errors left behind

Where the systems that tests run against are started:

    a hub, members, agents, controllers   clusterspace.testing.stage: running_fleet
    the same, with the gateway in front   component/gateway/fleet_site.py: fleet_site
    a hub alone, a real API server        clusterspace.testing.hubs
    one controller beside a live hub      component/*_site.py: scheduler, works, placement, …
    processes of their own                flows/members.py; conformance/hubs.py, sims.py, fleets.py
"""
