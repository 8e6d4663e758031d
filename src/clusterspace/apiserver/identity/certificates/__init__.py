"""Certificate requests: judged, approved, signed.

requests.py  what a CertificateSigningRequest asks for, whether an agent may have it, what is issued
signer.py    follows requests: approves agents, signs what is approved, removes what is over
verbs.py     `approval` and `status`, and reading requests with a bootstrap token

A request's own words become a certificate only through `requests.py`: subject and key are taken
over, everything else is ours.
"""
