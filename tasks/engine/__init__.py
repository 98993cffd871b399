"""Prompts in, tokens out: vLLM in a process of its own, its stand-in, and the models they load."""
