"""The stages of a night, one room each; see docs/architecture.md for the way a request takes through them."""
