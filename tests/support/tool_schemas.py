"""What prune_text and recover_text take, by their contract."""

# The contract's own schemas, word for word.
PRUNE_SCHEMA = """
{
  "type": "object",
  "properties": {
    "text": {"type": "string"},
    "goal_hint": {"type": "string"},
    "source_type": {"type": "string", "enum": ["code", "logs", "docs"]},
    "options": {
      "type": "object",
      "properties": {
        "max_prune_ratio": {"type": "number", "minimum": 0, "maximum": 1},
        "min_keep_lines": {"type": "integer", "minimum": 0},
        "timeout_ms": {"type": "integer", "minimum": 1},
        "annotate_lines": {"type": "boolean"},
        "include_markers": {"type": "boolean"}
      },
      "required": ["max_prune_ratio", "min_keep_lines", "timeout_ms", "annotate_lines", "include_markers"],
      "additionalProperties": false
    }
  },
  "required": ["text", "goal_hint", "source_type", "options"],
  "additionalProperties": false
}
"""
RECOVER_SCHEMA = """
{
  "type": "object",
  "properties": {
    "prune_id": {"type": "string"},
    "ranges": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "start_line": {"type": "integer", "minimum": 1},
          "end_line": {"type": "integer", "minimum": 1}
        },
        "required": ["start_line", "end_line"],
        "additionalProperties": false
      }
    },
    "include_line_numbers": {"type": "boolean"}
  },
  "required": ["prune_id", "ranges", "include_line_numbers"],
  "additionalProperties": false
}
"""
