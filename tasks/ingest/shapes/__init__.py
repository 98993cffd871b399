"""A row of any shape to a request without token ids, or to the fault that says why not."""
