"""The launcher's own machine: a child process, nothing around it."""

PREFIX: list[str] = []
