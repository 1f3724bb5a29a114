"""From artifacts to numbers, rows, plots and a report."""
