"""The one exception that the development cluster raises on purpose."""


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked; the message says what was found and what to do."""
