"""`GET /openapi.json`: what the server accepts and answers, as OpenAPI 3.1."""
