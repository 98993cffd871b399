"""Plan and journal to results; proves that nothing was lost."""
