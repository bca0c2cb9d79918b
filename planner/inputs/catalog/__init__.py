"""Which GPU machines can be rented, what they can do and what they cost, on a given day."""
