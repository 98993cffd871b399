"""The token-level checkpoint: what the engine handed over, safe against SIGKILL."""
