"""The administrator's parts, by what they are about. The face is `lograft.client.admin.Admin`.

Every question goes through `calls.Calls.spread`: the items asked about, where each is answered (any
broker, the controller, a coordinator, a leader), and how a broker is asked. It finds the place,
asks all places at once, and asks again for what may pass by itself, until `default.api.timeout.ms`
is over.
"""
