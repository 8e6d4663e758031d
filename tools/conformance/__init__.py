"""Other projects' end-to-end suites, run unmodified against what we serve.

suites.py      running a ginkgo suite, and reading what it reports
kubernetes.py  Kubernetes' conformance specs: hub beside a kube-controller-manager, simulated member
karmada.py     Karmada's own suite: a fleet of simulated members
reasons.py     why specs of Karmada's do not pass, each with what it is about
page.py        docs/conformance.md: every spec with its result, and what was not run

    make conformance                        everything whose binaries are found
    make conformance ARGS=karmada           Karmada's alone, and its parts of the pages
    make conformance ARGS="hub --focus CSR" one target, some specs; the page is left alone
    make conformance ARGS="karmada --work DIR --again"  what failed there, and then the pages

Binaries are built from the projects' own trees, elsewhere, and named by the environment:

    CONFORMANCE_KUBERNETES  e2e.test: `go test -c ./test/e2e`
    CONFORMANCE_KARMADA     e2e.test: `go test -c ./test/e2e/suites/base`
    CONFORMANCE_KARMADA_TREE, CONFORMANCE_KARMADACTL  the tree of its examples, and the command
    CONFORMANCE_KARMADA_WEBHOOK  may be missing: `go build` of
                            ./examples/customresourceinterpreter/webhook
    CONFORMANCE_GINKGO      `go build ./vendor/github.com/onsi/ginkgo/v2/ginkgo`
    KUBEBUILDER_ASSETS      where kube-controller-manager is; /usr/local/kubebuilder/bin without it

What is missing is not run, and the page says so.
"""
