"""What is measured (recipe), where (site) and which of them (settings): typed, strict, described."""
