"""The verbs of the `nightbatch` command: thin, each a flow or a query. Heavy imports wait until a verb needs them."""
