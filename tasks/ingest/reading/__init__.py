"""One file of any format to its rows, in the memory of a few of them."""
