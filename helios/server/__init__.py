"""HTTP/1.1 on asyncio protocols: OpenAI JSON, SSE, metrics, health."""
