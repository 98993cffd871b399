"""Is this machine fit for a night? What is there, what is missing, and what to do about it; changes nothing."""
