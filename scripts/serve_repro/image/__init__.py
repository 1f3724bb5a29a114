"""The software that serves: today pinned Python environments, resolved and hashed."""
