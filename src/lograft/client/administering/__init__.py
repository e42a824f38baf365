"""The administrator's requests, grouped by subject: functions over `calls.Calls`, which the methods
of `lograft.client.admin.Admin` call and document.

Every request goes through `calls.Calls.spread`: the items asked about, where each is answered (any
broker, the controller, a coordinator, a leader), and how a broker is asked. It finds the place,
asks all places at once, and asks again for what may pass by itself, until `default.api.timeout.ms`
is over.
"""
