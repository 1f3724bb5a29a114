"""Weights: found under the site's roots, listed with their hashes, verified on each node."""
