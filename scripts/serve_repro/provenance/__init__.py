"""From a row of the summary back to every byte that made it."""
