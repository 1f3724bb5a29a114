"""Whether a node is fit to serve now: what is seen on it, what that means, and who is kept out."""
