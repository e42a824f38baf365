"""The client for Python: asyncio first, with a synchronous face."""
