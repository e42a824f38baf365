"""Security decisions: permissions, principals and the credentials of SCRAM users.

Pure: no I/O, no clock, no randomness. An implementation of `Authorizer` would belong here, as would
SASL mechanisms, as exchanges of bytes without I/O; neither exists yet.

Entry points: `authorization` defines operations, resources and the `Authorizer` protocol that
`api/` calls; `principals` encodes the principal of a forwarded request; `scram_credentials` derives
the credentials that formatting stores.

Invariants: operations and resource types have the numbers of Kafka's ACLs; an `Authorizer` returns
immediately and never raises.
"""
