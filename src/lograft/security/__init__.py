"""Security decisions: permissions, principals and the credentials of SCRAM users.

Pure: no I/O, no clock, no randomness of its own. An implementation of `Authorizer` belongs here, as
do SASL mechanisms, as exchanges that get and return bytes; neither exists yet.

Entry points: `authorization` defines operations, resources and the `Authorizer` protocol that
`api/` calls; `principals` encodes the principal of a forwarded request; `scram_credentials` derives
the credentials that formatting stores.

Invariants: the numbers of operations and resource types are those of Kafka's ACLs; an `Authorizer`
returns immediately and never raises.
"""
