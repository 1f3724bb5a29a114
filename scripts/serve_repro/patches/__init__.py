"""Changes to the serving software as objects: listed, hashed, built into a set, attested by ranks."""
