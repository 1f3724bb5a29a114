"""Pictures of the results. The same numbers give the same SVG."""
