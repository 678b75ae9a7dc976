"""When evaluations are due, and that each time becomes one evaluation."""
