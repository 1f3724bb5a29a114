"""One point from plan to judged result."""
