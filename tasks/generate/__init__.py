"""The hot loop, and what is left to do after an interruption."""
