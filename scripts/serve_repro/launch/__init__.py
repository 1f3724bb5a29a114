"""Start ranks, watch them, wait until they really serve, stop them on every path out."""
