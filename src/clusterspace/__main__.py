"""`python -m clusterspace` is the command line."""

from clusterspace.cli.main import main

main()
