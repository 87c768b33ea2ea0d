"""The part of a chat template that tells a model of tools, for templates that know none.

It knows Jinja and one tool syntax: `<tool_call>` around a JSON object with name and arguments, results in `<tool_response>` in a
user's turn, as most tool-tuned models of this form were trained. Conversations without tools render as the template alone would.
"""

from __future__ import annotations

CALL_OPENER, CALL_CLOSER = "<tool_call>", "</tool_call>"

_PREAMBLE = """\
{%- set tool_turns = namespace(messages=[], results="", is_used=tools or false) -%}
{%- for message in messages -%}
  {%- if message.role == "tool" or message.tool_calls -%}{%- set tool_turns.is_used = true -%}{%- endif -%}
{%- endfor -%}
{%- if tool_turns.is_used -%}
  {%- if tools -%}
    {%- set tool_turns.system -%}
{{- "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n" -}}
{{- "You are provided with function signatures within <tools></tools> XML tags:\\n<tools>" -}}
{%- for tool in tools -%}{{- "\\n" ~ (tool | tojson) -}}{%- endfor -%}
{{- "\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within " -}}
{{- "<tool_call></tool_call> XML tags:\\n<tool_call>\\n" -}}
{{- '{"name": <function-name>, "arguments": <args-json-object>}' ~ "\\n</tool_call>" -}}
    {%- endset -%}
    {%- if messages[0].role == "system" -%}
      {%- set tool_turns.system = messages[0].content ~ "\\n\\n" ~ tool_turns.system -%}
      {%- set messages = messages[1:] -%}
    {%- endif -%}
    {%- set tool_turns.messages = [{"role": "system", "content": tool_turns.system}] -%}
  {%- endif -%}
  {%- for message in messages -%}
    {%- if message.role == "tool" -%}
      {%- set tool_turns.results = tool_turns.results ~ ("\\n" if tool_turns.results else "") ~
          "<tool_response>\\n" ~ message.content ~ "\\n</tool_response>" -%}
    {%- endif -%}
    {%- if tool_turns.results and (message.role != "tool" or loop.last) -%}
      {%- set tool_turns.messages = tool_turns.messages + [{"role": "user", "content": tool_turns.results}] -%}
      {%- set tool_turns.results = "" -%}
    {%- endif -%}
    {%- if message.tool_calls -%}
      {%- set tool_turns.calls = message.content -%}
      {%- for call in message.tool_calls -%}
        {%- set tool_turns.calls = tool_turns.calls ~ ("\\n" if tool_turns.calls else "") ~ "<tool_call>\\n" ~
            ({"name": call.function.name, "arguments": call.function.arguments} | tojson) ~ "\\n</tool_call>" -%}
      {%- endfor -%}
      {%- set tool_turns.messages = tool_turns.messages + [{"role": "assistant", "content": tool_turns.calls}] -%}
    {%- elif message.role != "tool" -%}
      {%- set tool_turns.messages = tool_turns.messages + [message] -%}
    {%- endif -%}
  {%- endfor -%}
  {%- set messages = tool_turns.messages -%}
{%- endif %}
"""


def with_tool_preamble(chat_template: str) -> str:
    """`chat_template`, which gets conversations without tools, calls and results: all of them are text of ordinary turns.

    The newline before it is the last block's and is not rendered, so that the template stands at the beginning of a line.
    """
    return _PREAMBLE + chat_template
