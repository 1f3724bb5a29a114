"""The software that serves: container images and pinned environments, resolved, had and proven."""
