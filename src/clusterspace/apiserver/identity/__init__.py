"""Who a credential stands for, and how credentials come to be, are renewed and end.

authenticator.py           request to user: certificate, then bearer token, then anonymous
logins.py                  what a token door answers; the doors tried one after the other
signing_keys.py            the key behind service-account tokens
service_account_tokens.py  service-account tokens: issued, read, checked against what is there now
token_requests.py          TokenRequest: `kubectl create token`
token_secrets.py           Secrets that hold a token, filled in; removed with their account
service_accounts.py        `default` and `kube-root-ca.crt` in every namespace
bootstrap_tokens.py        the first credential of a new cluster: read, checked, spent
token_expiry.py            bootstrap tokens past their time go away
cluster_info.py            kube-public/cluster-info, signed for whoever holds a bootstrap token
client_authority.py        whose client certificates count, published for other API servers
token_reviews.py           TokenReview: others ask us whose token it is
agents.py                  how the agent of a cluster is named
revocations.py             agents whose certificates no longer count
certificates/              certificate requests: judged, approved, signed; our own, renewed
following.py, reading.py   how controllers here follow and read the store
assembly.py                all verbs and all tasks of this package, for the process that runs them

No credential is believed because it once was: every use looks at the account, the Secret or the
cluster it stands for. Nothing here logs a token, a key or a Secret.
"""
