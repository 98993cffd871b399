"""What was measured while a run ran: in sums, and as a picture."""
