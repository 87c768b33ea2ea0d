"""A request turned into tokens: chat templates and tokenisation."""
