"""InferenceX's own documents: its aggregate of a point, written; an entry of its master config, read."""
