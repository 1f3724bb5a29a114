"""The library behind the programs in scripts/: recipes, plans, proofs, launch, gates and tables."""
