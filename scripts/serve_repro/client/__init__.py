"""The replay client: run it under watch, read what it exports."""
