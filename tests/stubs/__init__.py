"""Quick stand-ins for vLLM and the replay client, for tests of what surrounds them."""
