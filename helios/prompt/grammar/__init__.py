"""What an answer may say: structured output and strict tool calls as token masks."""
