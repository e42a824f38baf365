"""One file per Kafka API; `router` decodes, calls, encodes.

A module named like its API (`create_topics` for CreateTopics) has

    API: Final = Api(key=19, versions=range(2, 8), needs=each_item(CLUSTER_CREATE, TOPIC_CREATE))
    def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse: ...

and is served, and advertised, on the listeners that the protocol gives the API. `needs` names the
operations and resources that its requests need (`types`, `authorization`). `handle` may be
`async def`, or a plain function that answers at once when it can and returns a coroutine when it
must wait: a plain answer costs no task. It may have

    def error_response(request: XRequest, code: ErrorCode, message: str) -> XResponse: ...

for errors that end the whole request; without it a response with a top-level error code is made,
and where there is no such field the connection is closed.

Invariants: what is advertised is what has a module; a LograftError never leaves this room except
as its code; the request's frame is void after the first await.

Entry points: `router.Router`, `context.Context`, `errors.code_of`.
"""
