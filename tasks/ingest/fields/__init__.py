"""Field order: a table's fields put so that neighbouring prompts share the longest beginnings."""
