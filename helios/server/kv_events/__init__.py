"""KV events over ZeroMQ: what routers are told of the prefix cache's pages."""
