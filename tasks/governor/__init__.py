"""Heat and power, at the side of generate: samples in, at most a clock, a power limit and a number of sequences out."""
