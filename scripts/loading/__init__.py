"""What scripts/load is made of: a server without a model, clients that hold, ask and misbehave, and what they cost the server."""
