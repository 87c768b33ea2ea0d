"""Tokens turned into the events of an answer: characters, stops, reasoning, content and tool calls."""
